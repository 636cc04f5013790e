"""Cuts of groups of inputs, spelled as `shard` tactics with patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.workspace import matches, without_indices
from meshwright.partitioner.tactics import Shard, shard
from meshwright.planner.tree.cut_problem import CutProblem, CutState, InputCut


def spell_cuts(
    problem: CutProblem, cuts: Sequence[InputCut]
) -> tuple[tuple[Shard, ...], CutState]:
    """A `shard` tactic for each cut, in order, and the state that these lead to.

    The symmetry-reduced graph may propagate a cut further than the program does, because
    its groups can end at different layers. Inputs that only the reduced graph cuts get a
    second tactic after the cut that reached them, so that all inputs end up cut as in the
    search.
    """
    work = problem.work
    mark, num_refusals = work.state.mark(), len(work.refusals)
    tactics: list[Shard] = []
    state = problem.start()
    for cut in cuts:
        state = problem.apply(state, cut)
        wanted = _cut_dims(problem, state, cut.axis)
        members = {
            path: cut.dim
            for path, node in _leaves(problem)
            if problem.reduced_graph.class_of[node.index] == cut.group
        }
        for dims in (members, wanted):
            missing = _not_cut_yet(problem, dims, cut.axis)
            if missing:
                patterns = _patterns(missing, wanted, work.paths)
                tactic = shard(patterns, axis=cut.axis)
                tactic.apply(work)
                tactics.append(tactic)
    spelled = problem.state_from(work.state)
    work.state.rollback(mark)
    del work.refusals[num_refusals:]
    return tuple(tactics), spelled


def _cut_dims(problem: CutProblem, state: CutState, axis: str) -> dict[str, int]:
    """The dim along which an axis cuts each input, by path; uncut inputs left out."""
    sub_axis = problem.sub_axes[axis][0]
    dims = {
        path: int(state.cells[problem.reduced_graph.class_of[node.index], sub_axis])
        for path, node in _leaves(problem)
    }
    return {path: dim for path, dim in dims.items() if dim >= 0}


def _not_cut_yet(
    problem: CutProblem, dims: Mapping[str, int], axis: str
) -> dict[str, int]:
    """The entries of `dims` whose inputs the workspace does not cut along the axis."""
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
    """Patterns, with their dims, that match all paths of `dims`.

    No pattern matches a path whose dim in `allowed` is missing or another one.
    """
    found: dict[str, int] = {}
    for path, dim in dims.items():
        wide = without_indices(path)
        if found.get(wide) == dim:
            continue
        is_safe = wide not in found and all(
            allowed.get(other) == dim for other in every if matches(wide, other)
        )
        found[wide if is_safe else path] = dim
    return found
