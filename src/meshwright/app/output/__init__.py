"""Shared parts of text output: numbers with units, files, progress, and merged lines."""
