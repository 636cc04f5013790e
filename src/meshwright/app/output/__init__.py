"""Shared parts of all output: numbers with units, files, progress, collapsed lines."""
