"""Kinds of operations that the assignment solver counts, with the seconds each takes.

A solve that counts work instead of real time gives the same result on every machine.
"""

from meshwright.search.work import Work

MERGE = Work("merge", 3e-8)
"""Reading and reducing a problem at the start of a solve, per entry of edge tables."""

RESTRICT = Work("restrict", 1e-8)
"""Removing choices from a reduced problem, per entry of its edge tables."""

PASS = Work("pass", 8e-10)
"""A forward or backward pass of message passing, per entry (`Messages.num_entries`)."""

DIVE_STEP = Work("dive step", 2e-4)
"""One step of a dive, which assigns a part of the nodes.

Without its message passing.
"""

PLAN = Work("plan", 8e-5)
"""Planning an order of bucket elimination, per edge of the graph."""

ELIMINATE = Work("eliminate", 5e-9)
"""Bucket elimination of a Lagrangian relaxation, per table entry that it reads."""

DUAL_STEP = Work("dual step", 1.5e-9)
"""One step of the subgradient method, per choice of the graph with split nodes."""

SWEEP = Work("sweep", 1.4e-6)
"""Bucket elimination of all nodes of a large graph with small messages, per edge."""

DESCEND = Work("descend", 6e-6)
"""Exact optimisation of a neighbourhood in large neighbourhood search, per node."""
