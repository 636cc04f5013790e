"""Timelines of device programs: one stream of kernels, and the links both ways."""
