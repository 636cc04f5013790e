"""Tactics that decide by a search what earlier tactics leave open."""
