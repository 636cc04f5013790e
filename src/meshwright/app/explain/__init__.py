"""Explanations of a plan: the effect of each tactic, the reason for each collective."""
