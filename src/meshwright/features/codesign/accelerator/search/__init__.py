"""Search for a design: the space of designs, and what a candidate is worth."""
