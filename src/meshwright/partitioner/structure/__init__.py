"""Properties of a program for tactics: its parameters, activations and products.

Begin reading at `workspace.py`: a tactic calls `Workspace.cut` to shard dims, which
records a `Refusal`, with the reason in words, for each dim that cannot be sharded.
"""
