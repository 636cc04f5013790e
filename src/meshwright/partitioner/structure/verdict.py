"""The roles of inputs by their evidence, and the inputs whose role is doubtful."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.evidence import (
    Evidence,
    Findings,
    RoleCandidates,
    is_whole_number,
)

STRONG = 4
"""Points from which inputs of one argument may have different roles."""
DOUBTFUL = 1
"""Points up to which a role is doubtful, if a product reads the input."""

_OF_PRODUCTS = frozenset(
    {Evidence.FIRST, Evidence.SECOND, Evidence.LATER, Evidence.MEETS_TRAINED}
)
"""Evidence without which a wrong role does little harm: no product reads the input."""


@dataclass(frozen=True, slots=True)
class RoleVerdict:
    """Roles of the unknown inputs: weights, data and other constants, by position.

    constants: whole numbers among weights, such as tables of positions.
    doubts: the inputs whose role few points decide.
    """

    weights: frozenset[int]
    data: frozenset[int]
    constants: frozenset[int]
    doubts: frozenset[int]


def weigh(
    graph: Graph, paths: Sequence[str], inputs: RoleCandidates, found: Findings
) -> RoleVerdict:
    """The role that the evidence gives each unknown input.

    Inputs of one argument have one role, unless there is strong evidence for both. Then
    the same holds for each subtree of the argument, and the arrays beside the subtrees are
    data.
    """
    points = {i: found.points(i) for i in sorted(found.of)}
    totals: dict[int, int] = {}
    groups: dict[str, list[int]] = {}
    for i in points:
        groups.setdefault(paths[i].partition(".")[0], []).append(i)
    for group, own in groups.items():
        _weigh_group(paths, group, own, points, totals)
    _settle_pairs(found, totals)
    values = graph.program.inputs
    whole = {i for i in totals if is_whole_number(values[i].dtype)}
    weights = {i for i, n in totals.items() if n > 0 or (not n and i in inputs.state)}
    return RoleVerdict(
        frozenset(weights - whole),
        frozenset(totals.keys() - weights),
        frozenset(weights & whole),
        frozenset(
            i
            for i, total in totals.items()
            if abs(total) <= DOUBTFUL and found.of[i] & _OF_PRODUCTS
        ),
    )


def _settle_pairs(found: Findings, totals: dict[int, int]) -> None:
    """Give a doubtful operand of a product the role that the other operand does not have.

    The other one's role must be beyond doubt, perhaps by a third input.
    """
    todo = sorted(found.pairs)
    while todo:
        left = [(i, other) for i, other in todo if abs(totals[i]) <= DOUBTFUL]
        sure = [(i, other) for i, other in left if abs(totals[other]) > DOUBTFUL]
        totals.update({i: -totals[other] for i, other in sure})
        todo = left if sure else []


def _weigh_group(
    paths: Sequence[str],
    group: str,
    own: Sequence[int],
    points: Mapping[int, int],
    totals: dict[int, int],
) -> None:
    """Add the sum of the points of each input's group to `totals`.

    group: the path of an argument, or of a subtree. own: its unknown inputs.
    """
    least, most = (choose(points[i] for i in own) for choose in (min, max))
    total = sum(points[i] for i in own)
    if least > -STRONG or most < STRONG:
        is_each = least < 0 < most and abs(total) <= DOUBTFUL
        is_each = is_each and _are_arguments(paths, own)
        totals.update({i: points[i] if is_each else total for i in own})
        return
    parts: dict[str, list[int]] = {}
    for i in own:
        name = paths[i][len(group) + 1 :].partition(".")[0]
        parts.setdefault(f"{group}.{name}", []).append(i)
    for part, inner in parts.items():
        if len(inner) > 1 or paths[inner[0]] != part:
            _weigh_group(paths, part, inner, points, totals)
        else:
            alone = points[inner[0]]
            totals[inner[0]] = alone if abs(alone) > 2 * STRONG else -STRONG


def _are_arguments(paths: Sequence[str], own: Sequence[int]) -> bool:
    """Whether inputs are arrays of a function's `*args`, each an argument of its own."""
    return all(re.fullmatch(r"[^.]+\.\d+", paths[i]) for i in own)
