"""Plans that are known before any search, as choices of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.meshes import experts_of
from meshwright.planner.candidates.proposal import Proposal
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.projection import read_choices, spread_choices
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import Priced, Space
from meshwright.program.records.paused_collector import paused_collector

ALONE = "as given"
"""Name of the tactics that stand, with nothing added."""

type Expert = tuple[str, tuple[Tactic, ...], Choices]


class Experts:
    """What people do by hand, read once for each mesh.

    candidates: where strategies are noted that cannot be, and why.
    """

    def __init__(self, space: Space, candidates: list[Candidate]) -> None:
        self.space = space
        self.candidates = candidates
        self._read: dict[Mesh, list[Expert]] = {}

    def choices_on(self, mesh: Mesh) -> list[Choices]:
        """Of those that have been read."""
        return [choices for _, _, choices in self._read.get(mesh, ())]

    @paused_collector()
    def on(self, mesh: Mesh, priced: Priced) -> list[Proposal]:
        """Their plans by the model."""
        known = self._read.get(mesh)
        if known is None:
            known = self._read[mesh] = list(self._read_on(mesh, priced.model))
        return [
            Proposal(
                name,
                mesh,
                tactics,
                priced.pricer.finite_seconds(choices),
                priced.pricer.peak_bytes(choices),
                choices,
            )
            for name, tactics, choices in known
        ]

    def _read_on(self, mesh: Mesh, model: IntegerProgram) -> Iterator[Expert]:
        given = self.space.given
        alone: Mapping[str, tuple[Tactic, ...]] = {ALONE: ()} if given else {}
        applied = _Applied(self.space.start(mesh))
        for name, tactics in {**alone, **experts_of(mesh)}.items():
            try:
                work = applied.to(tactics)
            except MeshwrightError as error:
                told = Candidate(name, mesh, (*given, *tactics), why_not=str(error))
                seen = [(c.name, c.mesh, c.why_not) for c in self.candidates]
                if (name, mesh, told.why_not) not in seen:  # by a search before
                    self.candidates.append(told)
                continue
            yield name, tactics, read_choices(model, work.state)


class _Applied:
    """One strategy after the other on one workspace; what two begin with stays."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._ran: list[tuple[Tactic, int, int]] = []  # each, and where it began

    def to(self, tactics: Sequence[Tactic]) -> Workspace:
        """The workspace after these and no others; raises as they do."""
        same = 0
        for (tactic, _, _), other in zip(self._ran, tactics, strict=False):
            if tactic != other:
                break
            same += 1
        if self._ran[same:]:
            self._undo_to(*self._ran[same][1:])
        del self._ran[same:]
        for tactic in tactics[same:]:
            began = self._work.state.mark(), len(self._work.refusals)
            try:
                tactic.apply(self._work)
            except MeshwrightError:
                self._undo_to(*began)
                raise
            self._ran.append((tactic, *began))
        return self._work

    def _undo_to(self, mark: int, num_refusals: int) -> None:
        self._work.state.rollback(mark)
        del self._work.refusals[num_refusals:]


def spread(flat: Choices, source: Priced, target: Priced) -> Choices | None:
    """Choices for a mesh of one axis, with all axes of another in place of its one.

    None where the two have unlike groups, as what is given may differ by mesh.
    """
    if source.model.reduced_graph.class_of != target.model.reduced_graph.class_of:
        return None
    units, all_units = (
        [u for run in each.work.sub_axes.values() for u in run]
        for each in (source, target)
    )
    return spread_choices(source.model, flat, target.model, units, all_units)
