"""The partitioner: from a program and tactics to shardings and a device program.

Input: a program captured from JAX, a mesh, and tactics, which are decisions of a user
or a search about what to shard. Output: a device program, which has per-device shapes
and explicit collectives. Begin reading at `decide.py`, which calls these folders:

structure  parameters, activations and products of a program, as tactics look for them;
           `workspace.py` shards what a tactic asks for, or records why it cannot
tactics    decisions that a user lists; `tactic.py` is the interface of a tactic
propagate  from the shardings of a few values to a sharding of every value;
           `legality.py` says why a sharding is not possible, for instance of a dim
           whose size is not a multiple of the axis's
lower      from shardings to local ops and explicit collectives; `scope.py` gathers
           operands, once or at each use
"""
