"""Data sets of simulated designs, in the published ten-parameter space."""
