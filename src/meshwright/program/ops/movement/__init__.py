"""Rules of ops that move data: reshapes, slices, gathers, scatters, calls."""
