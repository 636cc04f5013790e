"""The loop that all searches share: problems, budgets, trajectories, results."""
