"""The making of a plan: tactics applied one after another, and what each of them did."""

from collections.abc import Sequence
from math import prod

from meshwright.app.explain import describe
from meshwright.app.explain.fixed import find_fixed
from meshwright.app.explain.uncut import describe_uncut
from meshwright.app.plan import Plan
from meshwright.app.record.plan_record import TacticEffect
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, apply_tactics
from meshwright.partitioner.lower import Gather, Lowered, count_collectives, lower
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.analysis.token_input import find_token_input
from meshwright.program.capture import Captured


def make_plan(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    gather: Gather,
    graph: Graph | None = None,
    known: Lowered | None = None,
) -> Plan:
    """The plan of a captured program under some tactics, applied in order.

    graph: as in `apply_tactics`.
    known: the lowered program under all these tactics, if the caller has it already.
    """
    effects: list[TacticEffect] = []
    snapshot = describe.Snapshot()
    lowered, counts = known, dict[str, int]()
    counted_version = -1  # of the state, when `counts` was made

    def after_tactic(tactic: Tactic | None, work: Workspace) -> None:
        nonlocal snapshot, lowered, counts, counted_version
        is_known = known is not None and len(effects) == len(tactics)
        if is_known or work.state.version != counted_version:
            # A tactic may change nothing, and then needs no device program of its own.
            lowered = known if is_known else lower(work.state, gather, XLA_WORKAROUNDS)
            assert lowered is not None, "known is given where it is taken"
            counts = count_collectives(lowered.program)
            counted_version = work.state.version
        effect, snapshot = describe.describe_tactic(tactic, work, counts, snapshot)
        effects.append(effect)

    work = apply_tactics(captured, mesh, tactics, after_tactic, graph)
    assert lowered is not None, "after_tactic runs once even without tactics"
    decided = Decided(captured, work, lowered, tuple(tactics), gather)
    program, sub_axes = captured.program, work.sub_axes
    leaves_of = describe.describe_leaves
    tokens = find_token_input(program, set(captured.ties.values()))
    return Plan(
        mesh,
        gather,
        counts,
        describe.describe_collectives(decided),
        leaves_of(captured.paths, program.inputs, lowered.inputs, sub_axes),
        leaves_of(captured.out_paths, program.outputs, lowered.outputs, sub_axes),
        tuple(effects),
        describe.replicated_ops(decided),
        find_fixed(work),
        uncut=describe_uncut(decided),
        name=captured.name,
        decided=decided,
        tokens_per_step=None if tokens is None else prod(program.inputs[tokens].shape),
        token_input="" if tokens is None else captured.paths[tokens],
    )
