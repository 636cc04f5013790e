"""Build a plan: apply tactics one after another, and record the effect of each."""

from collections.abc import Sequence
from math import prod

from meshwright.app.explain import describe
from meshwright.app.explain.fixed_shardings import find_fixed
from meshwright.app.explain.uncut import describe_uncut
from meshwright.app.plan import Plan
from meshwright.app.record.plan_record import TacticEffect
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, apply_tactics
from meshwright.partitioner.lower import Gather, Lowered, count_collectives, lower
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.solve.space import Space
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.energy import Location
from meshwright.program.analysis.token_input import find_token_input
from meshwright.program.capture import Captured


def make_plan(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    gather: Gather,
    graph: Graph | None = None,
    lowered: Lowered | None = None,
) -> Plan:
    """The plan of a captured program after applying tactics in order.

    graph: the propagation graph of this program, if the caller has built it already.
    lowered: the device program under all these tactics, if the caller has it already.
    """
    observer = _Observer(len(tactics), gather, lowered)
    work = apply_tactics(captured, mesh, tactics, observer.after_tactic, graph)
    lowered = observer.lowered
    assert lowered is not None, "after_tactic runs once even without tactics"
    decided = Decided(captured, work, lowered, tuple(tactics), gather)
    program, sub_axes = captured.program, work.sub_axes
    leaves_of = describe.describe_leaves
    tokens = find_token_input(program, set(captured.ties.values()))
    return Plan(
        mesh=mesh,
        gather=gather,
        counts=observer.counts,
        collectives=describe.describe_collectives(decided),
        inputs=leaves_of(captured.paths, program.inputs, lowered.inputs, sub_axes),
        outputs=leaves_of(
            captured.out_paths, program.outputs, lowered.outputs, sub_axes
        ),
        steps=tuple(observer.effects),
        whole=describe.replicated_ops(decided),
        fixed=find_fixed(work),
        uncut=describe_uncut(decided),
        name=captured.name,
        decided=decided,
        tokens_per_step=None if tokens is None else prod(program.inputs[tokens].shape),
        token_input="" if tokens is None else captured.paths[tokens],
    )


def simulated_plan(
    candidate: Candidate,
    space: Space,
    best: tuple[Candidate, Lowered] | None,
    place: Location | None,
) -> Plan:
    """The plan of a candidate that a search simulated, with its figures.

    space: the search space of a program, with the rewrites of the search applied.
    best: the best candidate and its device program, if they are known.
    """
    mesh, tactics = candidate.mesh, candidate.tactics
    rewrites = [t for t in space.kept_tactics if t.rewrite is not None]
    is_same = rewrites == [t for t in tactics if t.rewrite is not None]
    graph = space.graph if is_same else None
    lowered = best[1] if is_same and best and best[0] is candidate else None
    plan = make_plan(space.original, mesh, tactics, Gather.SHARED, graph, lowered)
    return plan.on(space.machine, place, donate_state=True)


class _Observer:
    """A callback for `apply_tactics`, which records the effect of each tactic.

    It lowers the program after each tactic that changed something.
    num_tactics: number of tactics.
    last_lowered: the device program after the last tactic, if the caller has it already.
    lowered: the device program after the latest tactic.
    counts: number of collectives in `lowered`, by kind.
    """

    def __init__(
        self, num_tactics: int, gather: Gather, last_lowered: Lowered | None
    ) -> None:
        self.num_tactics = num_tactics
        self.gather = gather
        self.last_lowered = last_lowered
        self.effects: list[TacticEffect] = []
        self.lowered: Lowered | None = None
        self.counts: dict[str, int] = {}
        self._snapshot = describe.Snapshot()
        self._version = -1  # version of the state that `lowered` comes from

    def after_tactic(self, tactic: Tactic | None, work: Workspace) -> None:
        """Record the effect of the tactic just applied.

        tactic: `None` for the sharding constraints in the user's code, which are applied
            first.
        """
        is_last = len(self.effects) == self.num_tactics
        # If the tactic has changed nothing, the last device program is still right.
        last = self.last_lowered if is_last else None
        if work.state.version != self._version or last is not None:
            self.lowered = last or lower(work.state, self.gather, XLA_WORKAROUNDS)
            self.counts = count_collectives(self.lowered.program)
            self._version = work.state.version
        effect, self._snapshot = describe.describe_tactic(
            tactic, work, self.counts, self._snapshot
        )
        self.effects.append(effect)
