"""Pipelines: `mw.pipeline`, its plan, and the submeshes of its stages.

In: a step, meshes, tactics, a number of microbatches and a schedule. Out: a function that
is called like the step. Begin reading at `pipelined.py`; `build.py` goes from a captured
step to the programs of its stages.
"""
