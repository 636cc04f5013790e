"""Placement of a chip's macros: cost of a move, memory, and placements found."""
