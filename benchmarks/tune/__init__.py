"""Tuned layouts and tiles, and the models that rank them."""
