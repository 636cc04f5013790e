"""Tactics that run collectives at the same time as computation; see `overlap.py`."""
