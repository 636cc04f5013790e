"""The planner: from a program and a machine to the best plan, without being told how.

In: a captured program, a machine and what is asked for. Out: candidates, as tactics.
Begin reading at `driver/search.py`.
"""
