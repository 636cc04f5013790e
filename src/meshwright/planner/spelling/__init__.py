"""Spelling: a found plan, given op by op, rewritten as a short list of tactics.

In: a workspace with all decisions of a found plan. Out: `shard`, `replicate` and `cut`
calls that a person could have written, and that propagate to nearly the same decisions.
Begin reading at `spelling.py`.
"""
