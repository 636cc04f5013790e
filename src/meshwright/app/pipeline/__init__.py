"""`mw.pipeline`: pipeline parallelism. The stages of a train step run on submeshes.

A submesh is a part of the mesh. The input is a step, meshes, tactics, a number of
microbatches and a schedule; the result is a function that is called like the step. Begin
reading at `pipelined.py`; `build.py` goes from a captured step to the programs of its
stages.
"""
