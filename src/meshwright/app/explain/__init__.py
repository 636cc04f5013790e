"""Text about a plan: the effect of each tactic, and the reason for each collective."""
