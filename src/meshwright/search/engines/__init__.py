"""Engines: one search algorithm per file, all driven by `search/loop/engine.py`."""
