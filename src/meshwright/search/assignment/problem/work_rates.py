"""Kinds of counted work of a solve."""

from meshwright.search.work import Work

MERGE = Work("merge", 3e-8)
"""To read and reduce a problem at the start of a solve, per entry of its tables."""

RESTRICT = Work("restrict", 1e-8)
"""To drop choices of a reduced problem, per entry of its tables."""

PASS = Work("pass", 8e-10)
"""For one forward or backward pass of messages, per entry (`Messages.num_entries`)."""

DIVE_STEP = Work("dive step", 2e-4)
"""For one part of a dive, without its passes of messages."""

PLAN = Work("plan", 8e-5)
"""To plan an order of elimination, per edge of the graph."""

ELIMINATE = Work("eliminate", 5e-9)
"""To eliminate the nodes of a relaxation, per entry of an elimination message."""

DUAL_STEP = Work("dual step", 1.5e-9)
"""For one step of the subgradient method, per choice of the split graph."""

SWEEP = Work("sweep", 1.4e-6)
"""To eliminate all nodes of a large graph with small messages, per edge."""

DESCEND = Work("descend", 6e-6)
"""To optimise a neighbourhood exactly, per node."""
