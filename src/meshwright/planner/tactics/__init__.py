"""Tactics that search for what the tactics before them leave open."""
