"""Counts collectives as Alpa's tests do: after those that can be one are one."""

from __future__ import annotations

import re
from collections import Counter

from meshwright.program.ops import COLLECTIVES
from tests.alpa.cases import Counts

_HLO = {
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "permute": "collective-permute",
}
_MERGEABLE = "axes", "dim", "gather", "split", "monoid"


def compiled_counts(step, args):
    """Collectives in the compiled program, after XLA has combined all-reduces."""
    lowered = step.lower(*args)
    options = {"xla_backend_optimization_level": 0}  # LLVM's, after all of XLA's passes
    text = lowered.compile(compiler_options=options).as_text()
    return Counts.of(
        {k: len(re.findall(rf" {op}(?:-start)?\(", text)) for k, op in _HLO.items()}
    )


def combined_counts(plan):
    """Collectives of a plan, were all merged that wait for none of their own kind.

    What a combiner reaches at best: one collective for each kind, with its axes, dims
    and monoid, and each round: how many such collectives it waits for in a chain.
    """
    program = plan.decided.lowered.program
    rounds = {}  # value -> {key: collectives of this key in the longest chain to it}
    found = set()
    for op in program.ops:
        before = Counter()
        for operand in op.operands:
            before |= rounds.get(operand, Counter())
        if op.kind in COLLECTIVES:
            key = op.kind, *(str(op.params.get(name)) for name in _MERGEABLE)
            before = before + Counter([key])
            found.add((op.kind, key, before[key]))
        rounds |= dict.fromkeys(op.results, before)
    merged = Counter(kind for kind, _, _ in found)
    return Counts.of({kind: merged[kind] for kind in COLLECTIVES})
