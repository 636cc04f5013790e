"""`mw.pipeline`: pipeline parallelism. The stages of a train step run on submeshes.

A submesh is a part of the mesh. In: a step, meshes, tactics, a number of microbatches and a
schedule; or a step and a machine. Out: a function that is called like the step; or the
fastest pipeline plan. Begin reading at `pipelined.py`, then `build.py`, which goes from a
captured step to the programs of its stages; for the search at `find_pipeline.py`. The
folders:

stages     the cut of a step into stages, tasks and microbatches
schedules  orders of tasks (1F1B, zero bubble and others), simulated and verified
plan       the plan of a built pipeline, its simulation and its views
planning   the search for stages, their meshes and tactics, microbatches and schedule
running    execution on submeshes, or as one program
"""
