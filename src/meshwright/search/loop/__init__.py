"""The loop that all search engines share: problems, budgets, trajectories, results."""
