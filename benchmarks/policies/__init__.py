"""Learned policies in systems: eviction in caches, inlining in a compiler."""
