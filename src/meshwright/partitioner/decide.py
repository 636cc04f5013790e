"""Applies tactics and lowers: from a captured program to a device program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType

from meshwright.errors import TacticError
from meshwright.machine import Mesh
from meshwright.partitioner.constraints import apply_constraints, manual_names
from meshwright.partitioner.lower import Gather, Lowered, Workaround, lower
from meshwright.partitioner.propagate import Graph, Propagator, State
from meshwright.partitioner.propagate.sub_axes import split_axes
from meshwright.partitioner.propagate.uneven import even_dims_of, moving_ops
from meshwright.partitioner.tactics import Recorded, Tactic, Workspace
from meshwright.partitioner.tactics.by_levels import axis_levels, level_sizes
from meshwright.program.capture import Captured
from meshwright.program.records import paused_collector
from meshwright.program.rewrite.even_dims import EvenDims


@dataclass(frozen=True, eq=False)
class Decided:
    """A captured program with all sharding decisions taken, and its device program.

    captured: the program before any tactic; `work` has the program after rewrites.
    gather: whether a value that several ops need unsharded is gathered once or per op.
    """

    captured: Captured
    work: Workspace
    lowered: Lowered
    tactics: tuple[Tactic, ...]
    gather: Gather


def decide(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    gather: Gather,
    graph: Graph | None = None,
    workarounds: Sequence[Workaround] = (),
) -> Decided:
    """Apply tactics in order, then lower the program.

    graph: as in `apply_tactics`. workarounds: as in `lower`.
    """
    with paused_collector():
        work = apply_tactics(captured, mesh, tactics, graph=graph)
        lowered = lower(work.state, gather, workarounds)
    return Decided(captured, work, lowered, tuple(tactics), gather)


def apply_tactics(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    after_tactic: Callable[[Tactic | None, Workspace], None] | None = None,
    graph: Graph | None = None,
) -> Workspace:
    """The workspace after all tactics, each propagated before the next is applied.

    after_tactic: called with each tactic after it is applied, and before that once with
        `None`, after the constraints in the user's own code.
    graph: the graph of the program after the rewrites of all tactics, if it is known.

    If the tactics shard a dim of which an op moves a part that does not correspond to
    those of devices, as `u[1:-1]` does, they are applied again to a program in which such
    dims are even (`rewrite/even_dims.py`).
    """
    require_tactics(tactics)
    mesh.require_all(axes_of(tactics))
    if graph is None:
        changed = rewritten(captured, tactics)
        graph = Graph(changed.program, changed.ties)
    else:
        changed = replace(captured, program=graph.program)
    even = next((t.decisions.even for t in tactics if isinstance(t, Recorded)), None)
    moving = {} if even else moving_ops(graph)
    if moving:
        work = _applied(changed, mesh, tactics, graph)
        even = even_dims_of(work.state, moving)
        program = even(graph.program) if even else graph.program
        if program is not graph.program:
            changed = replace(changed, program=program)
            graph = Graph(program, changed.ties)
        elif after_tactic is None:
            return work
        else:
            even = None
    return _applied(changed, mesh, tactics, graph, after_tactic, even)


def _applied(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    graph: Graph,
    after_tactic: Callable[[Tactic | None, Workspace], None] | None = None,
    even: EvenDims | None = None,
) -> Workspace:
    """The workspace after all tactics on one graph, whose dims `even` has made even."""
    work = start_workspace(captured, mesh, graph, tactics)
    work.even = even
    if after_tactic:
        after_tactic(None, work)
    for tactic in tactics:
        tactic.apply(work)
        if after_tactic:
            after_tactic(tactic, work)
    return work


def rewritten(captured: Captured, tactics: Sequence[Tactic]) -> Captured:
    """The captured program after the program rewrites of all tactics, in order."""
    program = captured.program
    for tactic in tactics:
        if tactic.rewrite is not None:
            program = tactic.rewrite(program)
    return (
        captured if program is captured.program else replace(captured, program=program)
    )


def start_workspace(
    captured: Captured, mesh: Mesh, graph: Graph, tactics: Sequence[Tactic] = ()
) -> Workspace:
    """The workspace before the first tactic, with the user's own constraints applied.

    tactics: the tactics that will be applied; the `by_levels` tactic splits its axis
        into levels before all others.
    """
    levels_of = level_sizes(tactics, mesh)
    sub_axis_mesh, sub_axes = split_axes(graph, mesh, manual_names(graph), levels_of)
    levels = axis_levels(tactics, sub_axes, sub_axis_mesh)
    state = State(graph, sub_axis_mesh, levels)
    work = Workspace(Propagator(state), captured.paths, mesh, sub_axes)
    apply_constraints(work)
    return work


def as_tactics(tactics: object) -> tuple[Tactic, ...]:
    """A list of tactics as a tuple; `TacticError` for a single tactic or anything else."""
    if isinstance(tactics, str):
        raise TacticError(
            f"tactics are a list, such as [mw.{tactics}(axis)]; got {tactics!r}"
        )
    if isinstance(tactics, Tactic):
        raise TacticError(f"{tactics} is one tactic; wanted a list: [{tactics}]")
    if not isinstance(tactics, Sequence):
        raise TacticError(
            f"tactics are {tactics!r:.60}; wanted a list, such as [mw.fsdp('data')]"
        )
    return tuple(tactics)


def require_tactics(tactics: Sequence[object]) -> None:
    """Raise `TacticError` for the first item that is not a tactic."""
    for tactic in tactics:
        if isinstance(tactic, FunctionType):
            raise TacticError(
                f"{tactic.__name__} is no tactic yet; call it, with an axis"
            )
        if not isinstance(tactic, Tactic):
            raise TacticError(
                f"{tactic!r} is no tactic; wanted mw.shard(...) and the like"
            )


def axes_of(tactics: Sequence[Tactic]) -> tuple[str, ...]:
    """The mesh axes that tactics name, without repetition, in order."""
    named = [axis for tactic in tactics for axis in tactic.axes or ()]
    return tuple(dict.fromkeys(axis for axis in named if isinstance(axis, str)))
