"""Searches for plans: quality of plans, evaluations, seconds and learned priors."""
