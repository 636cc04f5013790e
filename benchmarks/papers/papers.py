"""Published figures of Pope et al., PartIR and Alpa, compared with ours.

    python -m benchmarks papers papers [--out FILE] [--page FILE]

Computes the rows, stores them as JSON and writes docs/papers.md. Takes two minutes:
seven schedules of T32 at full size, and its serving loop, on two machines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks.papers import alpa, published
from benchmarks.papers.alpa_costs import AlphaBeta
from benchmarks.papers.inference_layouts import (
    Pair,
    cache_bytes,
    floor_of,
    layouts,
    longest_context,
    mfu_of,
    moved_bytes,
    pass_s,
    torus_of,
)
from benchmarks.papers.partir import MACHINES, it32, t32
from meshwright.machine import load_machine

RESULTS = places.RESULTS
PAGE = places.ROOT / "docs" / "papers.md"

Row = dict[str, Any]
SERVED = (16, 64)
"""Numbers of sequences; PartIR states none."""


# -- rows ---------------------------------------------------------------------------------


def context_rows() -> list[Row]:
    """Rows of Pope et al., Table 1."""
    free = 0.3 * load_machine("tpu-v4").chip.hbm_bytes
    rows: list[Row] = []
    for each in published.TABLE_1:
        decoder = replace(
            published.PALM_540B, kv_heads=each.kv_heads, d_head=each.d_head
        )
        held = cache_bytes(decoder, each.batch, 64, each.cut)
        rows.append(
            {
                "attention": each.name,
                "batch": each.batch,
                "published": int(each.context),
                "ours": longest_context(free, held),
            }
        )
    return rows


def served_rows() -> list[Row]:
    """Rows of Pope et al., Tables 2 and 3."""
    rows: list[Row] = []
    for each in published.TABLES_2_3:
        machine = load_machine("tpu-v4", each.chips)
        job = (each.decoder.parameters, each.passes.tokens, machine)
        pair = Pair(each.decoder.d_model, each.decoder.d_ff, each.passes.weight_bytes)
        tokens = each.passes.batch * each.passes.new
        sent = {
            name: moved_bytes(found)
            for name, found in layouts(pair, tokens, torus_of(machine)).items()
        }
        floor = floor_of(each.decoder, each.passes, machine)
        rows.append(
            {
                "row": each.name,
                "chips": each.chips,
                "layout": each.passes.layout,
                "over_least": sent[each.passes.layout] / min(sent.values()),
                "mfu_percent": float(each.mfu_percent),
                "ours_mfu_percent": 100 * mfu_of(*job, float(each.time_s)),
                "time_s": float(each.time_s),
                "ours_s": pass_s(*job, float(each.mfu_percent) / 100),
                "compute_s": floor.compute_s,
                "memory_s": floor.memory_s,
                "network_s": floor.network_s,
            }
        )
    return rows


def partir_rows() -> list[Row]:
    """Rows of PartIR, Table 4: T32, then the serving loop."""
    rows = [
        {"case": f"T32 {s}", "published": told, "ours": dict(t32(s))}
        for s, told in published.T32.items()
    ]
    return rows + [
        {
            "case": f"IT32 {s}, batch {batch}",
            "published": told,
            "ours": dict(it32(s, batch)),
        }
        for batch in SERVED
        for s, told in published.IT32.items()
    ]


def alpa_rows() -> list[Row]:
    """Alpa, Tables 2 and 3, with the cost of each row for alpha and beta of 1."""
    costs = AlphaBeta(tuple(alpa.MESH.values()), (1.0, 1.0), (1.0, 1.0))
    cases = {
        name: (wanted, alpa.resharding(have, need))
        for name, (have, need, wanted) in alpa.TABLE_2.items()
    }
    cases |= {
        name: (wanted, alpa.product(cuts))
        for name, (cuts, wanted) in alpa.TABLE_3.items()
    }
    return [
        {
            "case": name,
            "published": wanted,
            "ours": ours,
            "cost": sum(_cost(costs, move) for move in ours),
        }
        for name, (wanted, ours) in cases.items()
    ]


def _cost(costs: AlphaBeta, move: alpa.Move) -> float:
    """The cost of a collective in Alpa's closed forms.

    For an all-to-all, Alpa counts the bytes that all devices of the axis hold together.
    """
    kind, axes, size = move
    on = costs.flat() if len(axes) > 1 else costs
    axis = 0 if len(axes) > 1 else int(axes[0])
    times = on.shape[axis] if kind == "all_to_all" else 1
    return on.cost(kind, times * size, axis)


# -- the page -----------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterator[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def _off(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+.1f} %"


def _contexts(rows: list[Row]) -> Iterator[Sequence[object]]:
    for row in rows:
        ours, theirs = row["ours"], row["published"]
        yield row["attention"], row["batch"], theirs, ours, _off(ours, theirs)


def _served(rows: list[Row]) -> Iterator[Sequence[object]]:
    for row in rows:
        shares = f"{row['mfu_percent']:.0f}", f"{row['ours_mfu_percent']:.1f}"
        times = f"{row['time_s']:g}", f"{row['ours_s']:.3g}"
        floor = (row["compute_s"], row["memory_s"], row["network_s"])
        yield (
            f"{row['row']}, {row['chips']} chips, {row['layout']}",
            *shares,
            *times,
            _off(row["ours_s"], row["time_s"]),
            " / ".join(f"{s:.2g}" for s in floor),
            f"{row['over_least']:.2f}",
        )


def _partir(rows: list[Row]) -> Iterator[Sequence[object]]:
    """Each row's times, also as multiples of its group's first row (BP)."""
    first: Row = {}
    for row in rows:
        if " bp" in row["case"] and "+" not in row["case"]:
            first = row
        megabytes, milliseconds = row["published"]
        cells = [f"{milliseconds:.0f} ms ({milliseconds / first['published'][1]:.3f})"]
        sizes = [f"{megabytes * 2**20 / 2**30:.1f}"]
        for name in MACHINES:
            mine, base = row["ours"][name], first["ours"][name]
            cells.append(
                f"{mine['step_s']:.3f} s ({mine['step_s'] / base['step_s']:.3f})"
            )
            sizes.append(f"{mine['bytes'] / 2**30:.1f}")
        yield row["case"], cells[0], cells[2], cells[1], sizes[0], sizes[2], sizes[1]


def _moves(moves: Sequence[Sequence[Any]]) -> str:
    told = [f"{kind} {size:.0f} on {''.join(axes)}" for kind, axes, size in moves]
    return ", ".join(told) or "none"


def page(results: dict[str, list[Row]]) -> str:
    """The text of docs/papers.md: `papers.txt` with the tables."""
    tables = {
        "contexts": table(
            ("attention", "batch", "published", "ours", "error"),
            _contexts(results["pope_1"]),
        ),
        "served": table(
            (
                "row",
                "MFU %",
                "MFU of the time",
                "time s",
                "time of the MFU",
                "error",
                "least times s: compute / memory / network",
                "bytes",
            ),
            _served(results["pope_2_3"]),
        ),
        "partir": table(
            (
                "schedule",
                "time: published",
                "counted",
                "TPU v3",
                "GiB: published",
                "counted",
                "TPU v3",
            ),
            _partir(results["partir_4"]),
        ),
        "alpa": table(
            ("case", "published", "ours", "cost"),
            (
                (
                    r["case"],
                    _moves(r["published"]),
                    _moves(r["ours"]),
                    f"{r['cost']:.3f}",
                )
                for r in results["alpa_2_3"]
            ),
        ),
    }
    words = (Path(__file__).parent / "papers.txt").read_text()
    return words.format(**{name: "\n".join(rows) for name, rows in tables.items()})


@benchmark(option("--page", type=Path, default=PAGE), out=STORED)
def main(options: Options) -> None:
    """Compute, print, save."""
    results = {
        "pope_1": context_rows(),
        "pope_2_3": served_rows(),
        "partir_4": partir_rows(),
        "alpa_2_3": alpa_rows(),
    }
    options.save(results)
    options.page.write_text(page(results))
    print(options.page.read_text())


if __name__ == "__main__":
    main()
