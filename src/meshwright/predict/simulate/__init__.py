"""Timelines of device programs: kernels and collectives on two streams."""
