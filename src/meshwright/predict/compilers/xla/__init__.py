"""Passes that XLA's compilers share."""
