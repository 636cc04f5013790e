"""Solution of a mesh's integer program: priced in `space.py`, solved in `memory_limit.py`.

`planner/integer_program/builder.py` builds the program.
"""
