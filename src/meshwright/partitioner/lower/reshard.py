"""Resharding: the collectives that bring a value from one sharding to another.

The order is greedy. First, dims that need more axes are sliced, which is free. Then
axes that move from one dim to another go by all-to-all. A dim whose axes only change
their order goes by permute. All other axes are gathered, with one all-gather per dim,
and dims that still need axes are sliced last. `scope.py` calls this for each operand,
once or at each use.
"""

from dataclasses import dataclass
from itertools import takewhile

from meshwright.machine import Mesh
from meshwright.program.ir import Atom, Sharding
from meshwright.program.ops import Builder

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One slice or collective of a resharding.

    kind: "all_slice" or the kind of the collective.
    dim: the dim that grows or shrinks. axes: the mesh axes involved.
    other: the dim that an all_to_all splits. to: the new order of axes of a permute.
    """

    kind: str
    dim: int
    axes: Axes
    other: int = -1
    to: Axes = ()


def reshard_steps(have: Sharding, need: Sharding) -> tuple[ReshardStep, ...]:
    """The steps from sharding `have` to sharding `need`; neither is partial."""
    now = [list(axes) for axes in have.dims]
    goal = [list(axes) for axes in need.dims]
    steps: list[ReshardStep] = []
    _slice(now, goal, steps)
    _swap(now, goal, steps)
    _permute(now, goal, steps)
    for dim, axes in enumerate(now):
        keep = _common(axes, goal[dim])
        if len(axes) > keep:
            steps.append(ReshardStep("all_gather", dim, tuple(axes[keep:])))
            del axes[keep:]
    _slice(now, goal, steps)
    assert now == goal, f"resharding {have} to {need} ended at {now}"
    return tuple(steps)


def _common(now: list[str], goal: list[str]) -> int:
    """The length of the common prefix of two lists of axes."""
    pairs = zip(now, goal, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _slice(
    now: list[list[str]], goal: list[list[str]], steps: list[ReshardStep]
) -> None:
    """Slice dims along axes that no other dim uses, from the major axis on."""
    for dim, axes in enumerate(now):
        if _common(axes, goal[dim]) < len(axes):
            continue
        unused = {a for other in goal for a in other}.difference(*now)
        new = list(takewhile(unused.__contains__, goal[dim][len(axes) :]))
        if new:
            steps.append(ReshardStep("all_slice", dim, tuple(new)))
            axes.extend(new)


def _swap(
    now: list[list[str]], goal: list[list[str]], steps: list[ReshardStep]
) -> None:
    """Move the last axes of one dim to the end of another dim's axes by all-to-all."""
    for i, axes in enumerate(now):
        extra = axes[_common(axes, goal[i]) :]
        for j in range(len(now)):
            if j == i or _common(now[j], goal[j]) < len(now[j]):
                continue
            count = _overlap(extra, goal[j][len(now[j]) :])
            if count:
                run = tuple(axes[len(axes) - count :])
                steps.append(ReshardStep("all_to_all", i, run, j))
                del axes[len(axes) - count :]
                now[j].extend(run)
                _swap(now, goal, steps)  # this move may make others possible
                return


def _overlap(extra: list[str], wanted: list[str]) -> int:
    """Length of the longest run that is a suffix of `extra` and a prefix of `wanted`."""
    counts = range(min(len(extra), len(wanted)), 0, -1)
    return next((n for n in counts if extra[-n:] == wanted[:n]), 0)


def _permute(
    now: list[list[str]], goal: list[list[str]], steps: list[ReshardStep]
) -> None:
    """Reorder the axes of a dim by permute: axes to keep before axes to gather."""
    for dim, axes in enumerate(now):
        keep = _common(axes, goal[dim])
        extra, wanted = axes[keep:], goal[dim][keep:]
        if wanted and set(wanted) <= set(extra):
            order = wanted + [a for a in extra if a not in wanted]
            steps.append(ReshardStep("permute", dim, tuple(extra), to=tuple(order)))
            axes[keep:] = order


def emit_step(builder: Builder, x: Atom, step: ReshardStep) -> Atom:
    """Write one step of a resharding into a device program; returns the new value."""
    if step.kind == "all_slice":
        return builder.all_slice(x, step.dim, step.axes)
    if step.kind == "all_gather":
        return builder.all_gather(x, step.dim, step.axes)
    if step.kind == "all_to_all":
        return builder.all_to_all(x, step.dim, step.other, step.axes)
    chunks = range(builder.mesh.size(step.axes))
    pairs = tuple((c, builder.moved(c, step.to, step.axes)) for c in chunks)
    return builder.permute(x, step.axes, pairs)


def local_shape(
    shape: tuple[int, ...], sharding: Sharding, mesh: Mesh
) -> tuple[int, ...]:
    """The shape of one device's part of a value."""
    if not any(sharding.dims):
        return shape
    return tuple(
        n // mesh.size(axes) for n, axes in zip(shape, sharding.dims, strict=True)
    )
