"""A plan in words: what was decided, by whom, and why a collective is there."""
