"""Seconds of one collective over the links of a machine."""
