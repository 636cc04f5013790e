"""Kinds of work of a search, beside that of the solver, and the size of a program."""

from meshwright.planner.solve.space import Priced
from meshwright.search.work import Work

CAPTURE = Work("capture", 1.2e-4)
"""A node of a program that is captured and whose op is priced."""

PREPARE = Work("prepare", 4.5e-5)
"""A node of a rewritten program, whose op is priced."""

PRICE = Work("price", 5.5e-7)
"""An entry of a mesh's integer program, with all that is built for it."""

REPRICE = Work("reprice", 5.5e-7)
"""An entry of a mesh's integer program that is built again at other prices."""

READ_EXPERT = Work("read expert", 1.2e-5)
"""A node of a program, for each expert strategy that is applied and read."""

SIMULATE = Work("simulate", 5.5e-5)
"""A node of a program that is decided, lowered and simulated."""

REWRITE = Work("rewrite", 5e-5)
"""A node of a program for which a rewrite is looked for."""

SPELL = Work("spell", 5e-6)
"""A node of the site graph of a plan, each time that a list of cuts is scored."""


def num_entries(priced: Priced) -> int:
    """Entries of the integer program of a mesh: of its choices, and of its pairs."""
    model = priced.model
    pairs = sum(pair.seconds.size for pair in model.pair_costs)
    return pairs + sum(len(costs) for costs in model.costs)
