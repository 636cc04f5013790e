"""Sites: the values of a program whose layouts are worth choosing.

A site is a set of values that play the same role, in equal layers or in a loop's body,
and get one layout. A transpose of a value belongs to the value's site, since a layout
of one is a layout of the other.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshwright.features.tune.layouts.roles import read_uses
from meshwright.program.ir import Program, Value, num_bytes, show_type

_MOST_SITES = 40
_LEAST_SHARE = 0.01
"""Least bytes of a site's values, as a share of the largest site's bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A set of values that get one layout, such as one activation of all equal layers.

    name: short name, unique in the program and the same in every run.
    role: kinds of op that compute and read the values: "dot>dot.lhs" for a product's
        result that is the left operand of another product.
    dims: one letter per dim for its role in the ops around, see `roles.Uses`.
    weight: bytes of all values in one execution of the program; values in a loop count
        once per iteration.
    share: weight divided by the largest site's weight.
    source: source line of the op that makes the first value, or the input's path.
    twins: the gradients with respect to these values that the program computes.
    """

    name: str
    role: str
    dims: str
    values: tuple[Value, ...]
    weight: float
    share: float
    source: str
    twins: tuple[Value, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each value."""
        return self.values[0].shape

    @property
    def type(self) -> str:
        """The type of each value: `bf16[8, 512, 64]`."""
        return show_type(self.shape, self.values[0].dtype)


def find_sites(
    program: Program, paths: Sequence[str], most: int = _MOST_SITES
) -> tuple[Site, ...]:
    """The sites of a program with the most bytes, at most `most`, the largest first.

    paths: names of the program's inputs.
    """
    uses = read_uses(program, paths)
    groups: dict[str, list[Value]] = {}
    for value, use in uses.items():
        if use.is_site and len(value.shape) > 1 and math.prod(value.shape) > 1:
            groups.setdefault(use.signature, []).append(value)
    weights = {
        signature: sum(num_bytes(v) * uses[v].runs for v in values)
        for signature, values in groups.items()
    }
    largest = max(weights.values(), default=1.0)
    ranked = sorted(groups, key=lambda s: -weights[s])  # ties in program order
    kept = [s for s in ranked if weights[s] >= _LEAST_SHARE * largest][:most]
    sites: list[Site] = []
    for index, signature in enumerate(kept):
        values, weight = groups[signature], weights[signature]
        use, twins = uses[values[0]], (uses[value].twin for value in values)
        site = Site(
            name=f"v{index:02}",
            role=use.role,
            dims=use.dims,
            values=tuple(values),
            weight=weight,
            share=weight / largest,
            source=use.source,
            twins=tuple(twin for twin in twins if twin is not None),
        )
        sites.append(site)
    return tuple(sites)


def orders(rank: int) -> Iterator[tuple[int, ...]]:
    """Candidate layouts for arrays of a rank, dims major to minor, the default first.

    Each ordered pair of dims comes last once, since a TPU pads the two minor dims to
    tiles. The other dims keep their order.
    """
    default = tuple(range(rank))
    yield default
    for pair in itertools.permutations(range(rank), 2):
        order = (*(d for d in range(rank) if d not in pair), *pair)
        if order != default:
            yield order
