"""Steps of reduction programs, and the groups of devices in which they run.

A reduction program computes one collective, such as an all-reduce, as several smaller
ones. Its devices are the leaves of a tree: machine, nodes, devices. `factors[i]` is the
number of children of each node at depth i, so that depth 0 is the root and devices are
numbered from left to right. `inside 1` groups all devices under each node at depth 1.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from meshwright.errors import CollectiveError, did_you_mean

type Factors = tuple[int, ...]
type Groups = tuple[tuple[int, ...], ...]


class CollectiveKind(Enum):
    """The collective that each group of devices runs.

    The root of a reduce or broadcast is the group's first device.
    """

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    REDUCE = "reduce"
    BROADCAST = "broadcast"


class Form(Enum):
    """The way in which a step forms groups of devices in the machine's tree.

    INSIDE: each group is all devices under one node at the step's depth.
    PARALLEL: a group joins the i-th devices of all nodes at that depth that are under
        one node at a smaller depth. In 4 nodes of 8 GPUs: GPU i of each node.
    MASTER: as PARALLEL, for the first device (i = 0) only.
    """

    INSIDE = "inside"
    PARALLEL = "parallel"
    MASTER = "master"


@dataclass(frozen=True, slots=True)
class ReductionStep:
    """One step of a reduction program: a collective in several groups of devices.

    depth: depth, in the tree of the machine, of the nodes that are grouped or joined.
    under: smaller depth; nodes below one node there join groups. `None` for
        `Form.INSIDE`.

    >>> print(ReductionStep(CollectiveKind.REDUCE_SCATTER, Form.INSIDE, 1))
    reduce_scatter inside 1
    >>> print(ReductionStep(CollectiveKind.ALL_REDUCE, Form.MASTER, 1, 0))
    all_reduce master 1 under 0
    """

    collective: CollectiveKind
    form: Form
    depth: int
    under: int | None = None

    def __post_init__(self) -> None:
        if self.depth < 0 or (self.under is not None and self.under < 0):
            raise CollectiveError(f"{self} has a negative depth; the root has depth 0")
        if (self.form is Form.INSIDE) != (self.under is None):
            raise CollectiveError(
                f"{self.form.value} {self.depth} has under={self.under}; parallel and "
                "master need it, inside has none"
            )
        if self.under is not None and self.under >= self.depth:
            raise CollectiveError(
                f"{self} joins nodes under depth {self.under}; it must be less than "
                f"{self.depth}"
            )

    def __str__(self) -> str:
        under = "" if self.under is None else f" under {self.under}"
        return f"{self.collective.value} {self.form.value} {self.depth}{under}"

    def levels(self, num_levels: int) -> range:
        """The levels of the machine, as positions in `factors`, that a group spans."""
        if self.under is None:
            return range(self.depth, num_levels)
        return range(self.under, self.depth)

    def groups(self, factors: Factors) -> Groups:
        """The devices of each group, by number.

        The first device of a group is its root.

        factors: number of children of each node of the machine's tree, from the root
            down.
        """
        num_devices, below = math.prod(factors), math.prod(factors[self.depth :])
        if self.under is None:
            starts = range(0, num_devices, below)
            return tuple([tuple(range(s, s + below)) for s in starts])
        joined = math.prod(factors[self.under :])
        firsts = range(1 if self.form is Form.MASTER else below)
        return tuple(
            tuple(range(start + first, start + joined, below))
            for start in range(0, num_devices, joined)
            for first in firsts
        )


type ReductionProgram = tuple[ReductionStep, ...]


def show_program(program: Sequence[ReductionStep]) -> str:
    """The text of a reduction program, for `parse_program`: steps joined by `; `."""
    return "; ".join(map(str, program))


_STEP = re.compile(r"(\w+) +(\w+) +(\d+)(?: +under +(\d+))?")


def parse_program(text: str) -> ReductionProgram:
    """The reduction program of a text; `CollectiveError` if the text is malformed.

    >>> program = parse_program("reduce inside 0; broadcast inside 0")
    >>> show_program(program)
    'reduce inside 0; broadcast inside 0'
    """
    steps = [step.strip() for step in text.split(";")]
    return tuple(map(_parse_step, steps))


def _parse_step(text: str) -> ReductionStep:
    found = _STEP.fullmatch(text)
    if found is None:
        raise CollectiveError(
            f"cannot read step {text!r:.60}; wanted a collective, a form and a depth, such "
            "as 'reduce_scatter inside 1' or 'all_reduce parallel 1 under 0'"
        )
    name, form, depth, under = found.groups()
    collectives, forms = [c.value for c in CollectiveKind], [f.value for f in Form]
    for word, known in ((name, collectives), (form, forms)):
        if word not in known:
            hint = did_you_mean(word, known) or f"; there are {', '.join(known)}"
            raise CollectiveError(f"step {text!r:.60} has unknown word {word!r}{hint}")
    above = None if under is None else int(under)
    return ReductionStep(CollectiveKind(name), Form(form), int(depth), above)
