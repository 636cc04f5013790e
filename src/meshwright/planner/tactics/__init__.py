"""Tactics that decide by a search whatever earlier tactics leave open."""
