"""Training data: examples from files or functions, and batches in a reproducible order."""
