"""The intra-operator strategies that stages may use, on a mesh of one or two axes.

A strategy is a combination of published ones, such as data parallelism and Megatron.
"""

from collections.abc import Collection, Iterator

from meshwright.features.pipeline.planning.stage_mesh import DATA, MODEL, IntraStrategy
from meshwright.machine import Machine
from meshwright.partitioner.tactics import (
    Tactic,
    data_parallel,
    expert_parallel,
    megatron,
    sequence_parallel,
    zero,
)

_COMMON = ("", "Megatron", "Megatron + sequence")
_OTHER = ("expert", "expert + data on both", "ZeRO-3 on model")
"""Names of the ways to use the axis "model", in two groups."""

_MOST_MODEL = 16
"""Largest size of the axis "model" on machines with a single level of links."""


def intra_strategies(machine: Machine) -> Iterator[IntraStrategy]:
    """All strategies to try, those first that suit most programs.

    The axis "model" stays within the devices that the innermost links join.
    """
    for names in (_COMMON, _OTHER):
        model = 1
        while model <= largest_model(machine):
            yield from _on_mesh(model, names)
            model *= 2


def _on_mesh(model: int, names: Collection[str]) -> Iterator[IntraStrategy]:
    """The strategies of some names on meshes with an axis "model" of this size."""
    for with_model, model_name, model_tactics in _model_tactics(model):
        if model_name not in names:
            continue
        for data_name, data_tactics, state_tactics in _data_tactics():
            tactics = (*data_tactics, *model_tactics, *state_tactics)
            batch_axes = (DATA,) * bool(data_tactics) + with_model
            name = " + ".join(filter(None, (model_name, data_name))) or "one device"
            yield IntraStrategy(name, tactics, model, batch_axes)


def largest_model(machine: Machine) -> int:
    """The largest size of the axis "model" on a machine."""
    if len(machine.levels) > 1:
        return min(machine.num_devices, machine.levels[0].largest)
    return min(machine.num_devices, _MOST_MODEL)


def _data_tactics() -> Iterator[tuple[str, tuple[Tactic, ...], tuple[Tactic, ...]]]:
    """Ways to use the axis "data": a name, and two groups of tactics.

    The first group is applied before the tactics of the axis "model", the second after
    them.
    """
    data = (data_parallel(DATA),)
    yield "", (), ()
    yield "data", data, ()
    yield "ZeRO-3", data, (zero(3, DATA),)


def _model_tactics(
    model: int,
) -> Iterator[tuple[tuple[str, ...], str, tuple[Tactic, ...]]]:
    """Ways to use the axis "model".

    Each is a tuple: the axes that cut the batch, a name, and tactics.
    """
    if model == 1:
        yield (), "", ()
        return
    yield (), "Megatron", (megatron(MODEL),)
    yield (), "Megatron + sequence", (megatron(MODEL), sequence_parallel(MODEL))
    yield (), "expert", (expert_parallel(MODEL),)
    both = (data_parallel(MODEL), expert_parallel(MODEL))
    yield (MODEL,), "expert + data on both", both
    yield (MODEL,), "ZeRO-3 on model", (data_parallel(MODEL), zero(3, MODEL))
