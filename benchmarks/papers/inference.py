"""Simulated layouts of PaLM beside the measured rows of Pope et al., Tables 2 and 3.

    python -m benchmarks papers inference

For each row, `zoo/palm.py` is planned in every layout on the row's TPU v4 slice. Seconds
are those of all passes of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark
from benchmarks.papers.inference_layouts import torus_of
from benchmarks.papers.published import TABLES_2_3, Served
from meshwright.errors import TacticError
from zoo import palm

NAMES = {
    "weight_stationary_1d": "WS 1D",
    "weight_stationary_2d": "WS 2D",
    "weight_gathered_x": "WG X",
    "weight_gathered_xy": "WG XY",
    "weight_gathered_xyz": "WG XYZ",
}
GENERATED = 64
"""Tokens that a row of decoding makes after its prompt of 2,048."""


def program_of(row: Served) -> tuple[Any, tuple[Any, ...]]:
    """The program of a row; the paper pads 48 heads to 64."""
    sizes, passes = row.decoder, row.passes
    heads = 64 if sizes.heads == 48 else sizes.heads
    config = palm.Config(
        sizes.layers, sizes.d_model, sizes.d_ff, heads, sizes.d_head, sizes.vocab,
        passes.batch, 2048, 2048 + GENERATED, is_quantized=passes.weight_bytes == 1,
    )  # fmt: skip
    is_prefill = passes.new > 1
    return palm.prefill_target(config) if is_prefill else palm.decode_target(config)


def simulated(row: Served) -> Iterator[Mapping[str, Any]]:
    """The figures of each layout and attention that the row's batch allows."""
    machine = mw.machine("tpu-v4", chips=row.chips)
    mesh = dict(zip("xyz", torus_of(machine), strict=True))
    fn, args = program_of(row)
    for layout, name in NAMES.items():
        for attention in ("heads", "batch"):
            tactic = mw.inference(
                layout, list(mesh), attention=attention, vocabulary=False
            )
            try:
                plan = mw.partition(fn, mesh, [tactic]).plan(*args).on(machine)
            except TacticError:  # the batch of 1 is not cut
                continue
            yield {
                "row": row.name,
                "layout": name,
                "attention": attention,
                "seconds": plan.step_time_s * row.passes.count,
                "memory_bytes": plan.peak_memory_bytes,
                "fits": plan.fits,
                "paper_layout": row.passes.layout,
                "paper_s": float(row.time_s),
            }


def with_vocabulary(row: Served) -> Mapping[str, Any]:
    """Seconds of 2-D by batch, if the vocabulary is cut along all axes but the first."""
    machine = mw.machine("tpu-v4", chips=row.chips)
    mesh = dict(zip("xyz", torus_of(machine), strict=True))
    fn, args = program_of(row)
    tactics = [
        *(mw.shard({"params.embedding": 0}, axis=axis) for axis in list(mesh)[1:]),
        mw.inference(
            "weight_stationary_2d", list(mesh), attention="batch", vocabulary=False
        ),
    ]
    plan = mw.partition(fn, mesh, tactics).plan(*args).on(machine)
    return {
        "row": row.name,
        "seconds": plan.step_time_s * row.passes.count,
        "memory_bytes": plan.peak_memory_bytes,
        "paper_s": float(row.time_s),
    }


@benchmark(out=STORED)
def main(options: Options) -> None:
    """Plan all rows, print each one's fastest layout, write JSON."""
    found: list[Mapping[str, Any]] = []
    for row in TABLES_2_3:
        own = list(simulated(row))
        found += own
        best = min(own, key=lambda each: each["seconds"])
        print(
            f"{row.name}: {best['layout']}, attention by {best['attention']}, "
            f"{best['seconds']:.3g} s (paper: {row.passes.layout}, {row.time_s} s)"
        )
    cut = [with_vocabulary(row) for row in TABLES_2_3 if row.passes.new == 1]
    told = {"jax": jax.__version__, "rows": found, "vocabulary_cut": cut}
    options.save(told)


if __name__ == "__main__":
    main()
