"""The data of a run: examples from files or functions, and batches in one global order."""
