"""Seconds of one kernel on one chip: the roofline, with padding and tiles."""
