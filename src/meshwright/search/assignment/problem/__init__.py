"""The assignment problem, its reduced form and memory rows, and its file format."""
