"""Kinds of work of a solve, which decide how long a solve with a limit on rounds takes."""

from meshwright.search.work import Work

MERGE = Work("merge", 3e-8)
"""An entry of the tables of a problem, read and reduced at the start of a solve."""

RESTRICT = Work("restrict", 1e-8)
"""An entry of a reduced problem's tables, when choices are dropped."""

PASS = Work("pass", 8e-10)
"""An entry in one forward or backward pass of messages."""

DIVE_STEP = Work("dive step", 2e-4)
"""One part of a dive, beside its passes of messages."""

PLAN = Work("plan", 8e-5)
"""An edge of a graph for which an order of elimination is planned."""

ELIMINATE = Work("eliminate", 5e-9)
"""An entry of an elimination message, of the relaxation or of a sweep."""

DUAL_STEP = Work("dual step", 1.5e-9)
"""A choice of a copied node, in one step of the subgradient method."""

SWEEP = Work("sweep", 1.4e-6)
"""An edge in an elimination of all nodes of a large graph by small messages."""

DESCEND = Work("descend", 6e-6)
"""A node of a neighbourhood that is optimised exactly."""
