"""Benchmarks of searches for models and machines."""
