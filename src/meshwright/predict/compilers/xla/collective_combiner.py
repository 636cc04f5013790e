"""Collective combiner: several collectives of a program run as one.

XLA: `AllReduceCombiner` and its like for all-gathers and reduce-scatters. Collectives of
one kind and dtype along the same axes are launched together, up to a number of bytes, if
none needs the result of another. So a layer's many small gradients pay for one start, and
all of them are live until the last is computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Op, Value, num_bytes

COMBINED_BYTES = 30 * 2**20
"""Bytes of combined collectives, by default (XLA, `debug_options_flags.cc`)."""

COMBINED = frozenset({"all_gather", "all_reduce", "reduce_scatter"})
"""Kinds of collectives that are combined on GPUs."""


def _is_combined(op: Op) -> bool:
    return op.kind in COMBINED


@dataclass(slots=True)
class _Waiting:
    """Collectives that wait for others to run with.

    num_bytes: sum of their operands.
    """

    fusions: list[Fusion] = field(default_factory=list[Fusion])
    num_bytes: int = 0


def combine_collectives(
    fusions: Sequence[Fusion],
    is_combined: Callable[[Op], bool] = _is_combined,
    most_bytes: float = COMBINED_BYTES,
) -> tuple[Fusion, ...]:
    """The fusions, also in bodies of loops, with collectives that are launched together.

    A group stands where its last collective stood. All but the first of a group are
    marked as joined (`Fusion.is_joined`).
    is_combined: whether a collective is combined with others like it. most_bytes: bytes
    of a group.
    """
    within = [_with_bodies(fusion, is_combined, most_bytes) for fusion in fusions]
    return tuple(_combined(within, is_combined, most_bytes))


def _with_bodies(
    fusion: Fusion, is_combined: Callable[[Op], bool], most_bytes: float
) -> Fusion:
    """A fusion whose bodies, if it has any, have their collectives combined."""
    bodies = tuple(
        combine_collectives(each, is_combined, most_bytes) for each in fusion.bodies
    )
    return replace(fusion, bodies=bodies) if bodies else fusion


def _combined(
    fusions: Sequence[Fusion], is_combined: Callable[[Op], bool], most_bytes: float
) -> list[Fusion]:
    """The fusions of one program or body, with collectives launched together."""
    groups = _groups(fusions, is_combined, most_bytes)
    launched = {group[-1]: group for group in groups}
    members = {each for group in groups for each in group}
    order: list[Fusion] = []
    for fusion in fusions:
        if fusion in launched:
            first, *others = launched[fusion]
            order.append(first)
            order.extend(replace(each, is_joined=True) for each in others)
        elif fusion not in members:
            order.append(fusion)
    return order


def _groups(
    fusions: Sequence[Fusion], is_combined: Callable[[Op], bool], most_bytes: float
) -> list[list[Fusion]]:
    """Collectives that are launched together, each group in program order.

    A group ends before the first fusion that reads one of its results.
    """
    groups: list[list[Fusion]] = []
    waiting: dict[object, _Waiting] = {}
    key_of: dict[Value, object] = {}
    for fusion in fusions:
        for key in {key_of[value] for value in fusion.reads if value in key_of}:
            del waiting[key]
            key_of = {v: other for v, other in key_of.items() if other != key}
        if fusion.kind is not FusionKind.COLLECTIVE or not is_combined(fusion.root):
            continue
        params, dtype = fusion.root.params, fusion.reads[0].dtype
        key = fusion.root.kind, params["axes"], params.get("monoid"), dtype
        size = sum(map(num_bytes, fusion.reads))
        group = waiting.get(key)
        if group is not None and group.num_bytes + size > most_bytes:
            key_of = {v: other for v, other in key_of.items() if other != key}
            group = None
        if group is None:
            group = waiting[key] = _Waiting()
            groups.append(group.fusions)
        group.fusions.append(fusion)
        group.num_bytes += size
        key_of |= dict.fromkeys(fusion.writes, key)
    return groups
