"""A choice of product loops for a plan: those with which the simulated step is faster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.machine import Machine
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.propagate import State
from meshwright.partitioner.tactics import Workspace
from meshwright.planner.overlap.overlap import Overlap, overlap
from meshwright.planner.overlap.possible_loops import (
    Loops,
    equal_layers,
    loops_by_node,
    names_of,
    refused_by_rule,
    why_too_many_parts,
)
from meshwright.planner.overlap.step_times import StepTimes, mark_saving, step_times

_GATHERS = (Gather.SHARED,)
"""How the plans of a search gather values that several ops read."""


@dataclass(frozen=True, slots=True)
class LoopSearch:
    """A search for the product loops of one plan after another on one machine.

    has_time: whether there is time to simulate a step once more.
    count: called after each simulated step.
    """

    machine: Machine
    has_time: Callable[[], bool]
    count: Callable[[], None]

    def tactics(self, work: Workspace) -> tuple[Overlap, ...]:
        """The `overlap` tactics that make the plan of a workspace faster, if any do.

        They are marked in the workspace as well. Each names its loops, unless it makes
        all that are possible, so that it does not depend on the machine.
        """
        found: list[Overlap] = []
        for axis in work.mesh.axes:
            axes = work.sub_axes[axis]
            if why_too_many_parts(work.state.mesh, axes):
                continue
            loops = loops_by_node(work.state, axes, _GATHERS)
            chosen = self._marked(work.state, loops, axes) if loops else []
            if not chosen:
                continue
            is_all = len(chosen) == len(loops)
            found.append(overlap(axis, at=() if is_all else names_of(work, chosen)))
        return tuple(found)

    def _marked(
        self, state: State, loops: Loops, axes: tuple[str, ...]
    ) -> Sequence[int]:
        """Mark the loops that save time; returns their nodes.

        First come all loops that pass the rule together, or else by groups of equal
        layers; then the groups that the rule refuses.
        """
        refused = refused_by_rule(loops, state.mesh, self.machine)
        passed = [number for number in loops if number not in refused]
        tried = iter([passed] if passed and self.has_time() else [])
        chosen = mark_saving(state, tried, axes, self._step_times)
        left = [number for number in loops if number not in chosen]
        rest = (nodes for nodes in equal_layers(loops, left) if self.has_time())
        return [*chosen, *mark_saving(state, rest, axes, self._step_times)]

    def _step_times(self, state: State) -> StepTimes:
        self.count()
        return step_times(state, self.machine, _GATHERS)
