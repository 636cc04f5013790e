"""Collective combiner: small collectives of a GPU program run as one.

XLA: `AllReduceCombiner` and its like for all-gathers and reduce-scatters. Collectives of
one kind and dtype along the same axes are launched together, up to a number of bytes, if
none needs the result of another. So a layer's many small gradients pay for one start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Value, num_bytes

COMBINED_BYTES = 30 * 2**20
"""Bytes of combined collectives, by default (XLA, `debug_options_flags.cc`)."""

COMBINED = frozenset({"all_gather", "all_reduce", "reduce_scatter"})
"""Kinds of collectives that are combined."""


@dataclass(slots=True)
class _Waiting:
    """Collectives that wait for others to run with.

    num_bytes: sum of their operands.
    """

    fusions: list[Fusion] = field(default_factory=list[Fusion])
    num_bytes: int = 0


def combine_collectives(fusions: Sequence[Fusion]) -> tuple[Fusion, ...]:
    """The fusions, also in bodies of loops, with collectives that are launched together.

    A group stands where its last collective stood. All but the first of a group are
    marked as joined (`Fusion.is_joined`).
    """
    return tuple(_combined([_with_bodies(fusion) for fusion in fusions]))


def _with_bodies(fusion: Fusion) -> Fusion:
    """A fusion whose bodies, if it has any, have their collectives combined."""
    bodies = tuple(combine_collectives(body) for body in fusion.bodies)
    return replace(fusion, bodies=bodies) if bodies else fusion


def _combined(fusions: Sequence[Fusion]) -> list[Fusion]:
    """The fusions of one program or body, with collectives launched together."""
    order: list[Fusion] = []
    groups: dict[object, _Waiting] = {}
    group_of: dict[Value, object] = {}

    def launch(key: object) -> None:
        first, *others = groups.pop(key).fusions
        order.append(first)
        order.extend(replace(each, is_joined=True) for each in others)
        for value in [v for v, other in group_of.items() if other == key]:
            del group_of[value]

    for fusion in fusions:
        for key in dict.fromkeys(group_of.get(value) for value in fusion.reads):
            if key in groups:
                launch(key)
        if fusion.kind is not FusionKind.COLLECTIVE or fusion.root.kind not in COMBINED:
            order.append(fusion)
            continue
        params, dtype = fusion.root.params, fusion.reads[0].dtype
        key = fusion.root.kind, params["axes"], params.get("monoid"), dtype
        size = sum(map(num_bytes, fusion.reads))
        if key in groups and groups[key].num_bytes + size > COMBINED_BYTES:
            launch(key)
        group = groups.setdefault(key, _Waiting())
        group.fusions.append(fusion)
        group.num_bytes += size
        group_of |= dict.fromkeys(fusion.writes, key)
    for key in list(groups):
        launch(key)
    return order
