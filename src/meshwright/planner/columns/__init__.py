"""Propagation and prices over flat arrays, compiled, for searches of many states."""
