"""Prices of the planner: seconds to compute an op, and to reshard a value."""
