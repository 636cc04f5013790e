"""The inlining that makes a unit's text smallest, by compiling it many times.

In: a unit's source and flags. Out: the decisions of a replay file. Begin reading at
`search.py` (Theodoridis et al., ASPLOS 2022).
"""
