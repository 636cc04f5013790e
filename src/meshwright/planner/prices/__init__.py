"""Prices of all choices on one mesh, as an integer program."""
