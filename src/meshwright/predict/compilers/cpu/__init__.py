"""Passes of the CPU compiler."""
