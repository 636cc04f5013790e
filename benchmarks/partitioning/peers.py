"""Found plans compared with other ways to partition, in one run on 8 virtual CPU devices.

    python -m benchmarks partitioning peers [--rounds 15] [--only gpt]

A row is a program under a peer: stock `jax.jit` with annotations for data parallelism or
FSDP, google-parallax's AUTO where it is installed, `mw.autoplan`'s plan, and XLA's own
propagation from that plan's inputs and outputs. All are compiled first and then run
alternately, so that noise of the machine affects all. The ratio is the median of the
rounds' ratios to data parallelism (below 1 is faster). Every output of every peer is
compared with the step on one device. No peer donates the state.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks import places
from benchmarks.harness import ONLY, Options, benchmark, option

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax

import meshwright as mw
from benchmarks.partitioning.peer_cases import CASES, Case, built, flat
from benchmarks.partitioning.peer_steps import (
    BASE,
    DEVICES,
    Peer,
    by_hand,
    ours,
    parallax,
)
from benchmarks.partitioning.step_speed import seconds
from meshwright.app.check.compare_outputs import check_outputs
from meshwright.machine import load_machine
from meshwright.run.compilers.hlo import parse_hlo

RESULTS = places.RESULTS / "peers.json"
PAGE = places.ROOT / "docs" / "peers.md"
MACHINES = ("calibrated", "tpu-v5e")
"""What plans are found for: the virtual devices as `mw.calibrate` measures them, which
has them share their cores, and eight chips."""
COLLECTIVES = (
    "all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter",
)  # fmt: skip

Row = Mapping[str, Any]

# -- measuring ---------------------------------------------------------------------


def worst_error(case: Case, peer: Peer) -> float:
    """The largest error of an output; `AssertionError` if it exceeds rounding."""
    paths, original = flat(case)
    report = check_outputs(
        paths,
        original,
        lambda _: jax.tree.leaves(peer.compiled(*peer.placed)),
        jax.tree.leaves(built(case)[1]),
    )
    assert report.ok, f"{case.name}, {peer.name}: {report.summary}"
    return max(
        (o.error for o in report.outputs if not o.is_ill_conditioned), default=0.0
    )


def num_collectives(text: str) -> int:
    """Executions of collectives in a step of compiled code, loops included."""
    module = parse_hlo(text)
    return sum(
        module.runs.get(name, 0)
        for name, instructions in module.computations.items()
        for instruction in instructions
        if instruction.opcode.removesuffix("-start") in COLLECTIVES
    )


def row_of(case: Case, peer: Peer, rounds: Mapping[str, list[float]]) -> Row:
    """The measured figures of a peer; seconds of a step by peer and round."""
    told = peer.compiled.memory_analysis()
    return {
        "case": case.name,
        "peer": peer.name,
        "mesh": peer.mesh,
        "step_s": statistics.median(rounds[peer.name]),
        "ratio": statistics.median(
            a / b for a, b in zip(rounds[peer.name], rounds[BASE], strict=True)
        ),
        "memory_bytes": told.argument_size_in_bytes
        + told.output_size_in_bytes
        + told.temp_size_in_bytes
        - told.alias_size_in_bytes,
        "collectives": num_collectives(peer.compiled.as_text()),
        "error": worst_error(case, peer),
    }


def predicted_s(peer: Peer, machines: Mapping[str, mw.Machine]) -> Row:
    """Seconds of a step by machine, if the plan is ours to predict."""
    if peer.plan is None:
        return {}
    return {
        f"{name}_s": peer.plan.on(machine).step_time_s
        for name, machine in machines.items()
    }


def measure(
    case: Case, machines: Mapping[str, mw.Machine], num_rounds: int, budget_s: float
) -> list[Row]:
    """A row for each peer of a program; the first two rounds warm up."""
    found = [*by_hand(case), parallax(case)]
    for name, machine in machines.items():
        found.extend(ours(case, name, machine, budget_s))
    peers = [peer for peer in found if isinstance(peer, Peer)]
    rounds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for turn in range(num_rounds + 2):
        shift = turn % len(
            peers
        )  # rotates, so that no peer always runs after the same one
        for peer in peers[shift:] + peers[:shift]:
            taken = seconds(partial(peer.compiled, *peer.placed))
            if turn >= 2:
                rounds[peer.name].append(taken)
    return [
        row_of(case, peer, rounds) | predicted_s(peer, machines)
        if isinstance(peer, Peer)
        else {"case": case.name, "peer": peer.name, "why_not": peer.why}
        for peer in found
    ]


# -- the page ----------------------------------------------------------------------

HEAD = (
    "| program: peer | mesh | predicted | on v5e | measured | ratio | memory "
    "| collectives |\n|---|---|---|---|---|---|---|---|\n"
)


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown: ms, MiB, and executions a step."""
    return HEAD + "".join(map(line, rows))


def line(row: Row) -> str:
    """One row of the table, with "-" for unknown figures."""
    name = f"{row['case']}: {row['peer']}"
    if "why_not" in row:
        return f"| {name} | {row['why_not']} | - | - | - | - | - | - |\n"
    predicted = [row.get(f"{machine}_s") for machine in MACHINES]
    times = ["-" if s is None else f"{s * 1e3:.3g} ms" for s in predicted]
    cells = (
        name,
        row["mesh"],
        *times,
        f"{row['step_s'] * 1e3:.3g} ms",
        f"{row['ratio']:.2f}",
        f"{row['memory_bytes'] / 2**20:.3g} MiB",
        str(row["collectives"]),
    )
    return f"| {' | '.join(cells)} |\n"


@benchmark(
    option("--rounds", type=int, default=15),
    ONLY,
    option("--budget", type=float, default=10.0, help="seconds a search"),
    option("--calibration", type=float, default=25.0, help="seconds"),
    out=RESULTS,
)
def main(options: Options) -> None:
    """Measure, print the table, write JSON after each program."""
    rows: list[Row] = []
    here = mw.calibrate(budget_s=options.calibration)
    machines = dict(
        zip(MACHINES, (here, load_machine("tpu-v5e", DEVICES)), strict=True)
    )
    for case in CASES:
        if options.only in case.name:
            rows += measure(case, machines, options.rounds, options.budget)
            told = {"jax": jax.__version__, "rows": rows}
            options.save(told)
    print(table(rows))


if __name__ == "__main__":
    main()
