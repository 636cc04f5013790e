"""Running trials: the loop, worker processes, and the journal from which a search goes on.

In: a study (space, goals, engine, seed) and a function that evaluates a candidate. Out: a
front. Begin reading at `run.py`.
"""
