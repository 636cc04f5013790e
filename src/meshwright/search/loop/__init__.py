"""The loop that all searches share: problems, nodes, budgets, trajectories."""
