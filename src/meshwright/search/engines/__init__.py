"""Engines: one search algorithm a file, all driven by `search/engine.py`."""
