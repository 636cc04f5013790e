"""Analyses of programs: live ranges, live bytes, loop accumulators and input ranges."""
