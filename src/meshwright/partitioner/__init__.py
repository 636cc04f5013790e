"""The partitioner: from a program and tactics to shardings and a device program.

In: a `Program`, a mesh and tactics. Out: a device program with local shapes and
explicit collectives. Begin reading at `decide.py`, which calls these folders:

structure  parameters, activations and products of a program, as tactics look for them;
           `workspace.py` makes a tactic's cuts, and words the refusal of a cut
tactics    decisions that a user lists; `tactic.py` is the interface of a tactic
propagate  from a few cuts to a sharding of every value; `legality.py` says which cuts
           are possible, for instance of a dim that an axis does not divide
lower      from shardings to local ops and explicit collectives; `scope.py` gathers
           operands, once or at each use
"""
