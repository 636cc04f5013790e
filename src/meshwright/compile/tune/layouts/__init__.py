"""Layouts of a program's values: candidates, screens, a search, and its judges."""
