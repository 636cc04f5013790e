"""Designs learned from logs alone, simulated afterwards, beside logs and searches.

Published: PRIME (Kumar et al., ICLR 2022), 1.54 times faster for one application and 1.2
for several than searches that simulate, and 1.26 for an application without logs.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.codesign import edge_programs
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.codesign import accelerator as acc
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.logs.application import (
    describe_application,
)
from meshwright.features.codesign.accelerator.logs.prime_space import (
    AREA_CAP_MM2,
    NAMES,
)
from meshwright.features.codesign.accelerator.logs.write_logs import (
    simulate_design,
    write_log,
)
from meshwright.features.codesign.accelerator.offline.conservative import Conservatism
from meshwright.features.codesign.accelerator.offline.design_logs import (
    ApplicationLog,
    read_application_log,
)
from meshwright.features.codesign.accelerator.offline.learn import first_design
from meshwright.features.codesign.accelerator.offline.propose import (
    SPACE,
    best_logged,
    propose_designs,
)
from meshwright.features.codesign.accelerator.offline.surrogate import (
    Training,
    train_surrogate,
)
from meshwright.features.codesign.accelerator.offline.training_set import (
    make_training_set,
)
from meshwright.search.trials import Ageing, Candidate, Goals, Study, run_trials

LEARNED = ("mobilenet_v2", "unet", "rnn_encoder")
HELD_OUT = ("efficientnet_edge", "rnn_decoder")
KINDS = {"conservative": Conservatism(), "plain": Conservatism(0.0, 0.0)}


@benchmark(
    option("--seeds", type=int, default=5, help="trainings and searches of each kind"),
    option(
        "--logs", type=Path, default=None, help="folder of logs; default: made anew"
    ),
    option("--designs", type=int, default=20_000, help="logged for each application"),
    option("--steps", type=int, default=1200, help="of each training"),
    option("--evaluations", type=int, default=3000, help="of the surrogate"),
    option("--leave-out", type=float, default=0.0, help="share of the best designs"),
    option("--search", action="store_true", help="only the searches that simulate"),
    seed=0,
    out=STORED,
)
def main(options: Options) -> None:
    """Print by how much designs from logs alone are faster than the best logged one."""
    with tempfile.TemporaryDirectory() as made:
        log_of = cache(partial(logged, options.logs or Path(made), options))
        for seed in range(options.seed, options.seed + options.seeds):
            if options.search:
                search_cases(options, log_of, seed)
            else:
                learned_cases(options, log_of, seed)
    print_medians(options)


@cache
def workload(name: str) -> acc.Workload:
    """The layers of an application."""
    return acc.workload_of(*getattr(edge_programs, name)(), name)


def logged(folder: Path, options: Options, name: str) -> ApplicationLog:
    """The log of an application, simulated if it is not there, without its best designs."""
    path, work = folder / f"{name}.csv", workload(name)
    if not path.exists():
        write_log(path, work, options.designs)
    log = read_application_log(folder, name, [path]).within(AREA_CAP_MM2)
    order = np.argsort(log.runtime_ms)  # NaN last
    gone = order[: int(options.leave_out * log.is_feasible.sum())]
    kept = np.setdiff1d(np.arange(len(order)), gone)
    return ApplicationLog(
        name, log.genes[kept], log.runtime_ms[kept], log.area_mm2[kept],
        describe_application(work),
    )  # fmt: skip


def learned_cases(
    options: Options, log_of: Callable[[str], ApplicationLog], seed: int
) -> None:
    """Save the gain over the best logged design of each application, by kind."""
    prefix = f"without_best_{options.leave_out:g}/" if options.leave_out else ""
    data = make_training_set([log_of(name) for name in LEARNED], seed)
    for kind, weights in KINDS.items():
        training = Training(AREA_CAP_MM2, weights, options.steps, seed)
        surrogate = train_surrogate(data, training)
        for name in (*LEARNED, *HELD_OUT):
            log = log_of(name)
            starts = [log] if name in LEARNED else [log_of(each) for each in LEARNED]
            proposals = propose_designs(
                surrogate, data.context_of(log), AREA_CAP_MM2,
                starts=best_logged(starts),
                evaluations=options.evaluations, seed=seed,
            )  # fmt: skip
            design, chosen, refused = first_design(proposals, AREA_CAP_MM2)
            found = simulate_design(chosen.genes, workload(name)).runtime_ms
            best_ms = float(np.nanmin(log.runtime_ms))
            figures = {
                "gain": best_ms / found if found else 0.0,
                "runtime_ms": found or math.inf,
                "best_logged_ms": best_ms,
                "area_mm2": design.area_mm2,
                "refused": refused,
                "logged": len(log.genes),
                "feasible": int(log.is_feasible.sum()),
            }
            if name in LEARNED:
                figures["tau"] = surrogate.tau[name]
                figures["predicted_ms"] = surrogate.runtime_ms(chosen.merit, name)
            options.save_case(f"{prefix}{kind}/{name}", f"seed_{seed}", figures)


def search_cases(
    options: Options, log_of: Callable[[str], ApplicationLog], seed: int
) -> None:
    """Save the gain of a search with a tenth of the logged designs as trials.

    simulated_gain: after a tenth of the designs that the log really simulated, which are
    the feasible ones.
    """
    for name in LEARNED:
        log, work = log_of(name), workload(name)
        times: list[float] = []

        def evaluate(candidate: Candidate, work: Any = work) -> dict[str, float]:
            genes = tuple(int(candidate[each]) for each in NAMES)
            found = simulate_design(genes, work)
            if found.runtime_ms is None:
                raise AcceleratorError(found.reason)
            times.append(found.runtime_ms)  # noqa: B023  called within the loop
            return {"runtime_ms": found.runtime_ms}

        study = Study(SPACE, Goals({"runtime_ms": "min"}, {}), Ageing(), seed)
        run_trials(study, evaluate, trials=len(log.genes) // 10)
        best_ms = float(np.nanmin(log.runtime_ms))
        few = max(1, int(log.is_feasible.sum()) // 10)
        figures = {
            "gain": best_ms / min(times),
            "simulated_gain": best_ms / min(times[:few]),
            "simulated": len(times),
            "best_logged_ms": best_ms,
        }
        options.save_case(f"search/{name}", f"seed_{seed}", figures)


def print_medians(options: Options) -> None:
    """Print the median gain of each case over the stored seeds."""
    for case, seeds in sorted(options.stored({}).items()):
        rows: Sequence[Mapping[str, float]] = list(seeds.values())
        names = [n for n in ("gain", "simulated_gain", "tau") if n in rows[0]]
        shown = [
            f"{n} {statistics.median(row[n] for row in rows):.3f} "
            f"({min(row[n] for row in rows):.3f} to {max(row[n] for row in rows):.3f})"
            for n in names
        ]
        print(f"{case:32} {len(rows)} seeds  {'  '.join(shown)}")


if __name__ == "__main__":
    main()
