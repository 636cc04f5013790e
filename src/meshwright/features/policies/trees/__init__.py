"""Boosted trees, from which policies learn what a decision is worth."""
