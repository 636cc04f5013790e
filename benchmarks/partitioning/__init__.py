"""Partitioned functions: their cost, their speed, their peers and their correctness."""
