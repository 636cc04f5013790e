"""Kinds of counted work of a search, with typical seconds of each.

A search counts its work by these rates (`search.work`) and so does not depend on the
speed of the machine. The solver's own kinds are elsewhere.
"""

from meshwright.planner.solve.space import PricedProgram
from meshwright.search.work import Work

CAPTURE = Work("capture", 1.2e-4)
"""Work to capture a program and predict the seconds of its ops, per node."""

PREPARE = Work("prepare", 4.5e-5)
"""Work to prepare a rewritten program and predict the seconds of its ops, per node."""

PRICE = Work("price", 5.5e-7)
"""Work to build the integer program of a mesh, per entry of its cost tables."""

REPRICE = Work("reprice", 5.5e-7)
"""Work to build the integer program of a mesh again at other prices, per entry."""

READ_EXPERT = Work("read expert", 1.2e-5)
"""Work to apply one expert strategy and read its choices, per node of the program."""

SIMULATE = Work("simulate", 5.5e-5)
"""Work to partition, lower and simulate a program, per node."""

REWRITE = Work("rewrite", 5e-5)
"""Work to look for a rewrite of a program, per node."""

SPELL = Work("spell", 5e-6)
"""Work to score a list of tactics against a found plan, per node of its site graph."""


def num_entries(priced: PricedProgram) -> int:
    """The number of costs in a mesh's integer program, single and pair costs."""
    model = priced.model
    pairs = sum(pair.seconds.size for pair in model.pair_costs)
    return pairs + sum(len(costs) for costs in model.costs)
