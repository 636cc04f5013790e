"""Collectors of data sets for learned performance models, by compiling and measuring."""
