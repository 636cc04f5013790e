"""Partitions of a graph over a package of chips: methods and their graphs."""
