"""Factor rules: what an op does to its dims, how much it computes, and what kind it is of.

This room has the form of a rule, the table that holds them, and the builder that writes
device programs; the rule of each op stands in `program/ops`.
"""
