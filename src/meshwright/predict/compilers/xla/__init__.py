"""Passes that the targets of XLA share, one file each, under XLA's names."""
