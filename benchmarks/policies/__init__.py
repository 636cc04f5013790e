"""Learned policies in systems: eviction in caches."""
