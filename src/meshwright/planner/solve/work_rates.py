"""Kinds of counted work of a search (`search.work`), except the solver's; program sizes."""

from meshwright.planner.solve.space import Priced
from meshwright.search.work import Work

CAPTURE = Work("capture", 1.2e-4)
"""To capture a program and price its ops, per node."""

PREPARE = Work("prepare", 4.5e-5)
"""To prepare a rewritten program and price its ops, per node."""

PRICE = Work("price", 5.5e-7)
"""To build the integer program of a mesh, per entry of its costs."""

REPRICE = Work("reprice", 5.5e-7)
"""To build the integer program of a mesh again at other prices, per entry of its costs."""

READ_EXPERT = Work("read expert", 1.2e-5)
"""To apply one expert strategy and read its choices, per node of the program."""

SIMULATE = Work("simulate", 5.5e-5)
"""To decide, lower and simulate a program, per node."""

REWRITE = Work("rewrite", 5e-5)
"""To look for a rewrite of a program, per node."""

SPELL = Work("spell", 5e-6)
"""To score a list of cuts, per node of the plan's site graph."""


def num_entries(priced: Priced) -> int:
    """The number of costs in a mesh's integer program, of choices and of pairs."""
    model = priced.model
    pairs = sum(pair.seconds.size for pair in model.pair_costs)
    return pairs + sum(len(costs) for costs in model.costs)
