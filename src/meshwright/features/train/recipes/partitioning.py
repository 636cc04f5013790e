"""The mesh and the tactics of a training run, from its recipe."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshwright.app.autoplan import autoplan
from meshwright.app.plan import Plan
from meshwright.app.record.json_form import repeating_tactics
from meshwright.app.tactic_text import parse_tactics
from meshwright.errors import RecipeError, did_you_mean
from meshwright.features.train.recipes.recipe import PartitionPart
from meshwright.machine import Mesh
from meshwright.partitioner.decide import axes_of, require_tactics
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic, shard

AUTO = "auto"


def mesh_for(part: PartitionPart, num_devices: int) -> Mesh:
    """The recipe's mesh for this number of devices.

    An axis of size -1 gets the size that uses all devices.
    """
    known = math.prod(size for size in part.mesh.values() if size != -1)
    sizes = dict(part.mesh)
    for axis, size in sizes.items():
        if size == -1:
            if num_devices % known:
                raise RecipeError(
                    f"partition.mesh: {num_devices} devices are no multiple of {known}; "
                    f"give {axis} a size"
                )
            sizes[axis] = num_devices // known
    return Mesh(sizes)


def tactics_for(
    part: PartitionPart, schedules: Mapping[str, Sequence[Tactic]]
) -> tuple[Tactic, ...] | None:
    """The tactics that a recipe names; `None` if a search has to find them.

    schedules: named lists of tactics in the model's module.
    """
    if part.tactics == AUTO:
        return None
    if isinstance(part.tactics, tuple):
        chosen = parse_tactics(", ".join(part.tactics)) if part.tactics else ()
    elif part.tactics in schedules:
        chosen = tuple(schedules[part.tactics])
        require_tactics(chosen)
    else:
        near = did_you_mean(part.tactics, [*schedules, AUTO])
        raise RecipeError(
            f"partition.tactics: the model's module has no schedule {part.tactics!r}{near}"
            f"; it has {', '.join(schedules) or 'none'}. Or write a list of tactics, such "
            'as ["fsdp(\'data\')"], or "auto"'
        )
    sizes = {axis: max(1, size) for axis, size in part.mesh.items()}
    Mesh(sizes).require_all(axes_of(chosen))
    return chosen


def decisions_for(
    fn: Callable[..., Any],
    shapes: tuple[Any, ...],
    how: PartitionPart,
    tactics: tuple[Tactic, ...] | None,
    num_devices: int,
) -> tuple[Mesh, Sequence[Tactic], str | Gather]:
    """The mesh, the tactics and the `gather` mode for a function.

    shapes: types of the arguments.
    tactics: `None` to let `autoplan` search, which chooses the mesh as well.
    """
    if tactics is not None:
        return mesh_for(how, num_devices), tactics, how.gather
    found = autoplan(
        fn, shapes, machine=how.machine, chips=num_devices, budget_s=how.budget
    )
    return found.mesh, repeating_tactics(found) or found.tactics, found.gather


def sharding_tactics(plan: Plan) -> tuple[Tactic, ...]:
    """Tactics that give another function's arguments the shardings of a plan's inputs.

    The other function must have arguments with the same paths.
    """
    by_axis: dict[str, dict[str, int]] = {}
    for leaf in plan.inputs:
        for dim, axes in enumerate(leaf.spec):
            for axis in axes:
                by_axis.setdefault(axis, {})[leaf.path] = dim
    return tuple(
        shard(by_axis[axis], axis) for axis in plan.mesh.axes if axis in by_axis
    )
