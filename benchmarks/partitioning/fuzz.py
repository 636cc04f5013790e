"""A long run of generated programs and schedules.

    python -m benchmarks partitioning fuzz --cases 3000 --seed 0

Each case is drawn from (seed, its number) alone. The file is rewritten during the run, and
the same command continues where the run stopped. A case at which the whole process died,
as XLA does on some programs, is recorded and skipped then. `--only 17` runs one case and
prints it, with `--shrink` a small one that fails alike.
"""

from __future__ import annotations

import json
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import REQUIRED, STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax

from tests.fuzz.case import Case, draw_case
from tests.fuzz.check import Outcome, run_case, trace_case
from tests.fuzz.shrink import shrink

SAVE_EVERY = 20
FORGET_EVERY = 40  # compiled programs pile up otherwise


@dataclass
class Record:
    """Counts of the run so far; `next_case` is where it continues."""

    seed: int
    next_case: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    variants: Counter[str] = field(default_factory=Counter)
    meshes: Counter[str] = field(default_factory=Counter)
    gathers: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    cases_with_collectives: int = 0
    ops: int = 0
    cut_nodes: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    unsteady: list[str] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, number: int, case: Case, outcome: Outcome) -> None:
        """Count one case."""
        self.next_case = number + 1
        self.verdicts[outcome.verdict] += 1
        self.kinds.update(outcome.kinds)
        self.families.update(set(case.program.families))
        self.variants[case.program.variant] += 1
        self.meshes[",".join(f"{a}={n}" for a, n in case.mesh)] += 1
        self.gathers[case.gather] += 1
        self.collectives.update(dict(outcome.counts))
        self.cases_with_collectives += bool(outcome.counts)
        self.ops += outcome.num_ops
        self.cut_nodes += outcome.num_cut
        if outcome.verdict in ("ill-conditioned", "miscompiled"):
            note = f"case {number}: {outcome.verdict}: {outcome.detail}"
            self.unsteady.append(note)
        if outcome.verdict == "refused":
            self.refusals[outcome.detail[:120]] += 1
        if outcome.is_failure:
            failure = {
                "case": number,
                "verdict": outcome.verdict,
                "detail": outcome.detail,
            }
            self.failures.append({**failure, "reproducer": str(case)})

    def to_json(self) -> dict[str, Any]:
        """Plain data, counters from the most frequent."""
        plain = {k: dict(v.most_common()) if isinstance(v, Counter) else v
                 for k, v in vars(self).items()}  # fmt: skip
        return {**plain, "num_kinds": len(self.kinds), "jax": jax.__version__}


def load_record(path: Path, seed: int) -> Record:
    """The record of an earlier run with that seed, or a new one."""
    if not path.exists():
        return Record(seed)
    known = json.loads(path.read_text("utf-8"))
    if known["seed"] != seed:
        return Record(seed)
    record = Record(seed)
    for name, value in vars(record).items():
        loaded = known.get(name, value)
        setattr(record, name, Counter(loaded) if isinstance(value, Counter) else loaded)
    return record


Run = Callable[[Case], Outcome]


def run_number(seed: int, number: int, run_fn: Run) -> tuple[Case, Outcome]:
    """Draw and run one case."""
    case = draw_case(random.Random(f"{seed}:{number}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case, run_fn(case)


def run_all(record: Record, options: Options, run_fn: Run) -> None:
    """Run the remaining cases up to `options.cases`, saving from time to time."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    running = options.out.with_suffix(".running")
    if running.exists():
        record.aborted = sorted({*record.aborted, int(running.read_text())})
        options.save(record.to_json())
    for number in range(record.next_case, options.cases):
        if number in record.aborted:
            print(f"case {number}: passed over, the process died of it", flush=True)
            record.verdicts["aborted"] += 1
            continue
        running.write_text(str(number))
        start = time.perf_counter()
        case, outcome = run_number(record.seed, number, run_fn)
        record.add(number, case, outcome)
        record.seconds += time.perf_counter() - start
        if outcome.is_failure:
            print(
                f"\ncase {number}: {outcome.verdict}: {outcome.detail[:300]}",
                flush=True,
            )
        if number % SAVE_EVERY == SAVE_EVERY - 1 or number + 1 == options.cases:
            options.save(record.to_json())
            show(record)
        if number % FORGET_EVERY == FORGET_EVERY - 1:
            jax.clear_caches()
    running.unlink(missing_ok=True)


def show(record: Record) -> None:
    """One line of progress."""
    rate = record.seconds / max(1, record.next_case)
    verdicts = ", ".join(f"{n} {v}" for v, n in record.verdicts.most_common())
    kinds = len(record.kinds)
    print(
        f"{record.next_case} cases, {rate:.2f} s each: {verdicts}; {kinds} kinds",
        flush=True,
    )


@benchmark(
    option("--cases", type=int, default=3000),
    option("--only", type=int, help="run this case alone and print it"),
    option("--shrink", action="store_true", help="with --only: make it small"),
    option("--trace", action="store_true", help="plan and trace, don't run"),
    out=STORED,
    seed=REQUIRED,
)
def main(options: Options) -> int:
    """Run the cases; exit status 1 if one failed."""
    run_fn = trace_case if options.trace else run_case
    if options.only is not None:
        case, outcome = run_number(options.seed, options.only, run_fn)
        if options.shrink and outcome.is_failure:
            case = shrink(case, run_fn)
            outcome = run_fn(case)
        print(f"{case}\n{outcome.verdict}: {outcome.detail}")
        return int(outcome.is_failure)
    record = load_record(options.out, options.seed)
    run_all(record, options, run_fn)
    return int(bool(record.failures or record.aborted))


if __name__ == "__main__":
    main()
