"""Heads and tables of a model's words, and their cut along the vocabulary."""
