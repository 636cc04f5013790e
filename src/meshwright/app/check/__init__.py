"""Checks that a partitioned program computes the same outputs as the original."""
