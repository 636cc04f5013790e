"""Solution of the integer program of a mesh within a memory limit.

`planner/integer_program/builder.py` builds the program, `space.py` collects what is
needed for its costs, and `memory_limit.py` solves it.
"""
