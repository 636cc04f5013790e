"""A search for the layouts of a program's values, judged by compilers.

`sites` finds the values whose layout matters, and `problem` lists their possible
layouts. `search` chooses among them. A judge (`verdict`, `compiler_judge`) compiles
candidates and tells their cost; `screens` predicts the cost of candidates that are not
compiled.
"""
