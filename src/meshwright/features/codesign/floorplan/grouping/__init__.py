"""Grids and soft macros for flat netlists, as Circuit Training chooses and groups them."""
