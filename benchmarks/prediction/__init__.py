"""Predicted seconds and bytes, compared with measured and published ones."""
