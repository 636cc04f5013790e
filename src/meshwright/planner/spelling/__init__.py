"""Spelling: a found plan, given per op, written as a short list of ordinary tactics.

In: a workspace with all decisions of a found plan. Out: `shard`, `replicate` and `cut`
calls that a person could have written, and that propagate to nearly the same decisions.
Begin reading at `spelling.py`.
"""
