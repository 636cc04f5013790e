"""Cuts of groups of inputs, spelled as tactics with patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.patterns import matches
from meshwright.partitioner.tactics import Tactic, shard
from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut


def tactics_of(problem: CutProblem, cuts: Sequence[InputCut]) -> tuple[Tactic, ...]:
    """A `shard` for each cut, in order, that together cut all inputs as the cuts do.

    Groups may end at different layers, so that a cut of one means more of another than
    the program itself does. Inputs which are cut only so are named beside the cut that
    did it.
    """
    work = problem.work
    mark, refused = work.state.mark(), len(work.refusals)
    found: list[Tactic] = []
    point = problem.start()
    for cut in cuts:
        point = problem.apply(point, cut)
        wanted = _dims(problem, point, cut.axis)
        members = {
            path: cut.dim
            for path, node in _leaves(problem)
            if problem.reduced_graph.class_of[node.index] == cut.group
        }
        for dims in (members, wanted):
            missing = _open(problem, dims, cut.axis)
            if missing:
                patterns = _patterns(missing, wanted, work.paths)
                tactic = shard(patterns, axis=cut.axis)
                tactic.apply(work)
                found.append(tactic)
    work.state.rollback(mark)
    del work.refusals[refused:]
    return tuple(found)


def _dims(problem: CutProblem, point: CutState, axis: str) -> dict[str, int]:
    """By path the dim that an axis cuts of each input that it cuts."""
    unit = problem.units[axis][0]
    dims = {
        path: int(point.cells[problem.reduced_graph.class_of[node.index], unit])
        for path, node in _leaves(problem)
    }
    return {path: dim for path, dim in dims.items() if dim >= 0}


def _open(problem: CutProblem, dims: Mapping[str, int], axis: str) -> dict[str, int]:
    """Those that the tactics so far have not cut along the axis."""
    work = problem.work
    return {
        path: dims[path]
        for path, node in _leaves(problem)
        if path in dims and not work.is_cut(node, axis)
    }


def _leaves(problem: CutProblem) -> Iterator[tuple[str, Node]]:
    work = problem.work
    return zip(work.paths, work.graph.input_nodes, strict=True)


def _patterns(
    dims: Mapping[str, int], allowed: Mapping[str, int], every: Sequence[str]
) -> dict[str, int]:
    """Patterns that mean all of some paths and none that is not to be cut so."""
    found: dict[str, int] = {}
    for path, dim in dims.items():
        wide = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)
        if found.get(wide) == dim:
            continue
        is_safe = wide not in found and all(
            allowed.get(other) == dim for other in every if matches(wide, other)
        )
        found[wide if is_safe else path] = dim
    return found
