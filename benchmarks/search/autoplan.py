"""Found plans compared with experts' strategies: all programs of the zoo, four machines.

    python -m benchmarks search autoplan [--only resnet] [--machines tpu-v5e,h100]
        [--picture FILE]

Resumable: cases in the results file are not run again. Each case searches within the
budget of counted work, with no safety net in real time, so that a busy machine finds the
same plans. Then all experts' strategies are simulated, without a limit of time, on the mesh
of one axis and on the three meshes of two axes that the integer program ranks first.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean

import meshwright as mw
from benchmarks.harness import ONLY, STORED, Options, benchmark, option
from meshwright.errors import MeshwrightError
from meshwright.machine import load_machine
from meshwright.planner.candidates.expert_plans import expert_strategies
from meshwright.planner.candidates.meshes import meshes_of
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.driver.plan_as_tactics import SPELLED
from meshwright.planner.driver.search import search_with_recomputation
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import CAPTURE
from meshwright.search.work import WorkMeter

MACHINES = {"tpu-v3": 16, "tpu-v5e": 32, "tpu-v5p": 64, "h100": 64}
"""Number of chips by machine; a chip of TPU v3 has two devices."""

TRANSFORMERS = (
    "gpt:t32", "gpt3:t24", "llm:alpa_2_6b", "primer:primer_medium", "moe:moe_2_4b",
    "t5:base", "serving:it32", "vit:l_16", "multimodal:nano1",
)  # fmt: skip

OTHERS = (
    "resnet:resnet_50", "resnet:wrn_1b", "efficientnet:b0", "mixer:b_16", "unet:ho_256",
    "unet3d:cicek", "sngan:cifar10", "gns:edges_8192", "d4pg:humanoid", "lstm:big_lstm",
    "wavenet:teacher", "parallel_wavenet:student", "ranking:web30k",
)  # fmt: skip

Row = dict[str, object]


def run_case(target: str, machine_name: str, budget_s: float) -> Row:
    """Search, then simulate every expert."""
    module, name = target.split(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    (make,) = (f for f in workload.full if f.__name__ == name)
    fn, args = make()
    machine = load_machine(machine_name, None, MACHINES[machine_name])
    meshes = meshes_of(machine)
    started = time.monotonic()
    with SolverProcess() as solver:
        captured = mw.partition(fn, meshes[0]).capture(*args)
        capture_s = time.monotonic() - started
        limit = machine.chip.usable_bytes
        task = SearchTask(
            Space(captured, machine), meshes, limit, lambda seconds, num_bytes: seconds
        )
        budget = TimeBudget(budget_s, WorkMeter(budget_s))
        budget.count(CAPTURE, len(task.space.graph.nodes))
        state = SearchState(task, solver, budget)
        state = search_with_recomputation(state)
    row: Row = {"capture_s": capture_s, "seconds": time.monotonic() - started}
    seen = {(c.name, c.mesh) for c in state.trials.candidates}
    own = [c for c in state.trials.candidates if c.name == FOUND]
    if any(c.fits for c in own):
        row["own_s"] = min(c.step_time_s for c in own if c.fits)
    try:
        told = state.result()
        best = told.candidates[0]
        row |= {"auto_s": best.step_time_s, "auto_bytes": best.peak_memory_bytes}
        row |= {"auto_mesh": str(best.mesh), "gap": told.gap}
        row |= {"model_s": told.model_s, "bound_s": told.bound_s}
    except MeshwrightError as error:
        row["auto_error"] = str(error)
    ranked = [*state.programs.ranked_meshes(), *state.programs.unsolved]
    likely = [mesh for mesh in ranked if len(mesh.axes) > 1]
    for mesh in (meshes[0], *likely[:3]):
        for expert, tactics in expert_strategies(mesh).items():
            if (expert, mesh) not in seen:
                state.trials.simulate(expert, mesh, tactics)
    named = [c for c in state.trials.candidates if c.name not in (FOUND, SPELLED)]
    experts = [c for c in named if not c.why_not]
    row["experts"] = [
        (c.name, str(c.mesh), c.step_time_s, c.peak_memory_bytes) for c in experts
    ]
    fitting = [c for c in experts if c.fits]
    if fitting:
        first = min(fitting, key=lambda c: c.step_time_s)
        row |= {"expert_s": first.step_time_s, "expert": first.name}
        row["expert_mesh"] = str(first.mesh)
    return row


def ratio_of(row: Mapping[str, object]) -> float | None:
    """The returned plan's step time over that of the best expert's plan that fits."""
    return _ratio(row.get("auto_s"), row.get("expert_s"))


def _ratio(auto: object, expert: object) -> float | None:
    if not isinstance(auto, float) or not isinstance(expert, float):
        return None
    return auto / expert


def summary(rows: Mapping[str, Row]) -> Row:
    """Mean and worst ratios, and counts, over all rows."""
    told: Row = {}
    for title, names in (("transformers", TRANSFORMERS), ("others", OTHERS)):
        ratios = [
            ratio
            for key, row in rows.items()
            if key.split(" ")[0] in names and (ratio := ratio_of(row)) is not None
        ]
        if ratios:
            told[f"{title}, geometric mean"] = geometric_mean(ratios)
            told[f"{title}, worst"] = max(ratios)
            told[f"{title}, cases"] = len(ratios)
        own = [
            ratio
            for key, row in rows.items()
            if key.split(" ")[0] in names
            and (ratio := _ratio(row.get("own_s"), row.get("expert_s"))) is not None
        ]
        if own:
            told[f"{title}, geometric mean of its own plans"] = geometric_mean(own)
    gaps = [float(str(row["gap"])) for row in rows.values() if "gap" in row]
    if gaps:
        told["gap at most 2 %"] = sum(gap <= 0.02 for gap in gaps) / len(gaps)
    return told


def table(rows: Mapping[str, Row]) -> str:
    """The Markdown table, with one row per machine."""
    lines = [
        "| machine | programs | fit | others: mean, worst | transformers: mean, worst "
        "| gap at most 2 % |",
        "|---|---|---|---|---|---|",
    ]
    for machine in MACHINES:
        mine = {
            t: r for k, r in rows.items() for t, m in [k.split(" ")] if m == machine
        }
        told = [f"{machine}, {MACHINES[machine]} chips", str(len(mine))]
        told.append(str(sum("auto_s" in row for row in mine.values())))
        for names in (OTHERS, TRANSFORMERS):
            ratios = [r for t in names if (r := ratio_of(mine.get(t, {}))) is not None]
            mean = f"{geometric_mean(ratios):.2f}, {max(ratios):.3f}" if ratios else ""
            told.append(mean)
        gaps = [float(str(row["gap"])) for row in mine.values() if "gap" in row]
        told.append(f"{sum(gap <= 0.02 for gap in gaps)} of {len(gaps)}")
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def draw(rows: Mapping[str, Row], path: Path) -> None:
    """Draw all ratios: one row per program, one colour per machine."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    targets = [*reversed((*OTHERS, *TRANSFORMERS))]
    figure, axes = plt.subplots(figsize=(8, 7), layout="constrained")
    for number, machine in enumerate(MACHINES):
        places: list[float] = []
        ratios: list[float] = []
        for place, target in enumerate(targets):
            ratio = ratio_of(rows.get(f"{target} {machine}", {}))
            if ratio is not None:
                places.append(place + 0.12 * (1.5 - number))
                ratios.append(ratio)
        label = f"{machine}, {MACHINES[machine]} chips"
        axes.scatter(ratios, places, s=18, color=f"C{number}", label=label)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.axhline(len(TRANSFORMERS) - 0.5, color="0.7", linewidth=0.8)
    axes.set(
        xscale="log", xlabel="step of the found plan in parts of the best expert's"
    )
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0], ["0.05", "0.1", "0.2", "0.5", "1"])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(targets)), targets)
    axes.set_ylim(-0.6, len(targets) - 0.4)
    axes.grid(axis="x", linewidth=0.4)
    axes.legend(loc="lower left")
    figure.savefig(path, dpi=110)


@benchmark(
    ONLY,
    option("--machines", default=",".join(MACHINES)),
    option("--budget", type=float, default=15.0),
    option("--picture", type=Path),
    out=STORED,
)
def main(options: Options) -> None:
    """Run the cases asked for, and print one line for each."""
    rows: dict[str, Row] = options.stored({"cases": {}})["cases"]
    for machine in options.machines.split(","):
        for target in (*OTHERS, *TRANSFORMERS):
            key = f"{target} {machine}"
            if key in rows or options.only not in target:
                continue
            rows[key] = run_case(target, machine, options.budget)
            gc.collect()
            ratio = ratio_of(rows[key]) or math.nan
            print(
                f"{key:34s} {ratio:6.3f} {rows[key].get('auto_mesh', '-'):18} "
                f"{rows[key].get('expert', '-')} on {rows[key].get('expert_mesh', '-')} "
                f"{rows[key]['seconds']:.0f} s",
                flush=True,
            )
            told = {"jax": __import__("jax").__version__, "summary": summary(rows)}
            options.save(told | {"cases": rows})
    print(json.dumps(summary(rows), indent=1))
    print(table(rows))
    if options.picture is not None:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
