"""Engines: one search algorithm per file, all driven by `search/loop/engine.py`.

A new one is a new file with a class that satisfies `Engine` there, and is exported by
`search/__init__.py`.
"""
