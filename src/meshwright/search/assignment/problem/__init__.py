"""The assignment problem, its forms inside the solver, and its file format."""
