"""Layouts that `plan_phases` chooses for PaLM, beside those of Pope et al.

    python -m benchmarks papers serving

The rows are those of the paper's Tables 2 and 3. Prefill and decoding are planned over
one copy of the weights, by the expert strategies, on the torus of a TPU v4 slice. Large
prefills run in parts that fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark
from benchmarks.papers.inference import NAMES, program_of
from benchmarks.papers.inference_layouts import Pair, layouts, moved_bytes, torus_of
from benchmarks.papers.published import TABLES_2_3, Served
from meshwright.app.phases import PhasePlans, ServedPhase, plan_phases
from meshwright.app.plan import Plan

BUDGET_S = 600.0

CASES = (
    # rows of prefill and decoding (None: not in the tables), chips, parts of the prefill
    ("540B fast prefill", "540B fast decode", 64, 1),
    ("540B large prefill", "540B large decode", 64, 2),
    ("62B fast prefill", "62B fast decode", 16, 1),
    ("62B large prefill", None, 32, 1),
    (None, "62B large decode", 8, 16),
)


def phases_of(case: tuple[str | None, str | None, int, int]) -> list[ServedPhase]:
    """Prefill and decoding of a case; a row that is missing is that of other chips."""
    prefill, decode, chips, parts = case
    rows = {row.name: row for row in TABLES_2_3}
    own = [
        rows[prefill or "62B large prefill"],
        rows[decode or "62B large decode"],
    ]
    found: list[ServedPhase] = []
    for row, times in zip(own, (parts, 1), strict=True):
        passes = replace(row.passes, batch=row.passes.batch // times)
        sized = replace(row, passes=passes, chips=chips)
        found.append(ServedPhase(*program_of(sized), times * row.passes.count))
    return found


def layout_of(plan: Plan) -> str:
    """The paper's name of a plan's layout."""
    chosen = [str(tactic) for tactic in plan.tactics]
    return next(
        (name for key, name in NAMES.items() if f"inference('{key}'" in chosen[0]),
        ", ".join(chosen),
    )


def tied_layouts(row: Served) -> set[str]:
    """Layouts that send as many bytes as the row's own by the paper's formula.

    The paper holds the 2-D layout for better above (F / E)^2 chips, which are 16 here:
    on 16 chips it sends exactly as much as the 1-D layout.
    """
    pair = Pair(row.decoder.d_model, row.decoder.d_ff, row.passes.weight_bytes)
    torus = torus_of(mw.machine("tpu-v4", chips=row.chips))
    sent = {
        name: moved_bytes(transfers)
        for name, transfers in layouts(pair, row.passes.tokens, torus).items()
    }
    return {name for name, each in sent.items() if each == sent[row.passes.layout]}


def rows_of(case: Any, plans: PhasePlans) -> list[Mapping[str, Any]]:
    """The chosen layout of each phase of a case, beside the paper's."""
    published: dict[str, Served] = {row.name: row for row in TABLES_2_3}
    return [
        {
            "row": name or "not in the tables",
            "chips": case[2],
            "layout": layout_of(plans[i]),
            "tactics": str(plans[i].tactics[0]),
            "seconds": plans[i].step_time_s * plans.times[i],
            "alone_s": plans.alone_s[i],
            "paper_layout": published[name].passes.layout if name else None,
            "tied_layouts": sorted(tied_layouts(published[name])) if name else None,
            "paper_s": float(published[name].time_s) if name else None,
        }
        for i, name in enumerate(case[:2])
    ]


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Plan all cases, print each phase's layout, write JSON."""
    found: list[Mapping[str, Any]] = []
    for case in CASES:
        machine = mw.machine("tpu-v4", chips=case[2])
        mesh = {a: n for a, n in zip("xyz", torus_of(machine), strict=True) if n > 1}
        plans = plan_phases(
            phases_of(case), machine=machine, mesh=mesh, search="experts",
            budget_s=BUDGET_S,
        )  # fmt: skip
        found += rows_of(case, plans)
        for row in found[-2:]:
            print(row, flush=True)
        told = {"jax": jax.__version__, "rows": found}
        options.save(told)


if __name__ == "__main__":
    main()
