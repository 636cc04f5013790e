"""Benchmarks that make the figures of the docs, by area; README.md is their index."""
