"""Placers: legal starts, and searches on the exact proxy cost."""
