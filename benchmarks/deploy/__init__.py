"""Exported programs on every target: sizes, errors and latencies."""
