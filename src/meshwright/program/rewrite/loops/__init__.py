"""Loops over layers: unrolling, and the division of their stacked arrays into layers."""
