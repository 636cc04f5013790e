"""Policies that are learned for systems: which object a cache evicts.

`cache` simulates and runs caches; each other room of this folder is for another system.
"""
