"""Build a plan: apply tactics one after another, and record the effect of each."""

from collections.abc import Sequence
from math import prod

from meshwright.app.explain import describe
from meshwright.app.explain.fixed_shardings import find_fixed
from meshwright.app.explain.loops import describe_loops
from meshwright.app.explain.uncut import describe_uncut
from meshwright.app.explain.unpriced import describe_unpriced
from meshwright.app.plan import Plan
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, apply_tactics
from meshwright.partitioner.lower import Gather, Lowered
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.solve.space import Space
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
    observer = describe.TacticObserver(len(tactics), gather, lowered)
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
        counts=observer.effects[-1].counts,
        collectives=describe.describe_collectives(decided),
        inputs=leaves_of(captured.paths, program.inputs, lowered.inputs, sub_axes),
        outputs=leaves_of(
            captured.out_paths, program.outputs, lowered.outputs, sub_axes
        ),
        steps=tuple(observer.effects),
        whole=describe.replicated_ops(decided),
        fixed=find_fixed(work),
        uncut=describe_uncut(decided),
        unpriced=describe_unpriced(decided),
        loops=describe_loops(decided),
        donated=tuple(captured.paths[i] for i in captured.donated),
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
    donate_state: bool = True,
) -> Plan:
    """The plan of a candidate that a search simulated, with its figures.

    space: the search space of a program, with the rewrites of the search applied.
    best: the best candidate and its device program, if they are known.
    donate_state: as in `Plan.on`.
    """
    mesh, tactics = candidate.mesh, candidate.tactics
    rewrites = [t for t in space.kept_tactics if t.rewrite is not None]
    is_same = rewrites == [t for t in tactics if t.rewrite is not None]
    graph = space.graph if is_same else None
    lowered = best[1] if is_same and best and best[0] is candidate else None
    plan = make_plan(space.original, mesh, tactics, Gather.SHARED, graph, lowered)
    return plan.on(space.machine, place, donate_state)
