"""Single products with fused work: our seconds compared with the TPU compiler's.

    python -m benchmarks tpu tpu_products [--only TEXT] [--out FILE]

Each product is compiled to the end for one device of v4, v5e, v5p and v6e, with operands
that exceed its scratch memory (rows whose operands the compiler prefetches into it are
left out). The efficiency `reread` of each chip, and `product` of v5e and v5p, are fitted to
these rows.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from benchmarks import places
from benchmarks.harness import ONLY, STORED, Options, benchmark

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from benchmarks.tpu.tpu_cases import CHIPS
from meshwright.machine import load_machine
from meshwright.predict.compilers.model.compilation import compile_program
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.roofline.kernel_time import kernel_time
from meshwright.program.capture import capture
from meshwright.run.compilers.confirm import find_backend
from meshwright.run.compilers.hlo import estimated_cycles

RESULTS = places.RESULTS

SHAPES = ((16384, 16384, 16384), (12288, 28672, 8192), (12288, 8192, 28672))
"""Rows, contracted dim, columns."""

Built = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A product on a chip."""

    chip: str
    dtype: str
    shape: tuple[int, int, int]
    fused: str

    @property
    def name(self) -> str:
        """The key of the case in the results."""
        extents = "x".join(map(str, self.shape))
        return f"{self.chip}/{self.dtype}/{extents}/{self.fused}"

    def built(self) -> Built:
        """The function and its arguments."""
        rows, summed, columns = self.shape
        x, w, y = (
            jax.ShapeDtypeStruct(shape, self.dtype)
            for shape in ((rows, summed), (summed, columns), (rows, columns))
        )
        dtype = self.dtype

        def dot(left: Any, right: Any) -> Any:
            wide = jax.lax.dot(left, right, preferred_element_type=jnp.float32)
            return wide.astype(dtype)

        def adam(left: Any, right: Any, *state: Any) -> Any:
            p, m, v = state
            gradient = dot(left, right)
            m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
            return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

        def two(left: Any, right: Any, gate: Any, up: Any) -> Any:
            made = dot(left, right)
            return made * jax.nn.silu(gate), made * up

        made: dict[str, Built] = {
            "nothing": (dot, (x, w)),
            "left of two": (lambda a, b, c: dot(a * b, c), (x, x, w)),
            "left of three": (
                lambda a, b, c, d: dot(jax.nn.silu(a) * b * c, d),
                (x, x, x, w),
            ),
            "right of two": (lambda a, b, c: dot(a, b * c), (x, w, w)),
            "sum": (lambda a, b, c: dot(a, b) + c, (x, w, y)),
            "two results of two": (two, (x, w, y, y)),
            "left of two, sum": (lambda a, b, c, d: dot(a * b, c) + d, (x, x, w, y)),
            "Adam": (adam, (x, w, y, y, y)),
            "left of two, Adam": (
                lambda a, b, c, *d: adam(a * b, c, *d),
                (x, x, w, y, y, y),
            ),
        }
        return made[self.fused]


FUSED = {
    "bfloat16": (
        "nothing", "left of two", "left of three", "right of two", "sum",
        "two results of two", "left of two, sum",
    ),
    "float32": ("nothing", "left of two", "sum", "Adam", "left of two, Adam"),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All cases."""
    for chip in CHIPS:
        for dtype, ways in FUSED.items():
            for shape in SHAPES:
                for each in ways:
                    yield Case(chip, dtype, shape, each)


def told_s(case: Case) -> float | None:
    """The compiler's seconds; `None` if it prefetches an operand or fuses otherwise."""
    machine = load_machine(case.chip, 4)
    backend = find_backend(machine)
    os.environ.update(backend.environment)
    name, options = backend.target(machine)
    found = topologies.get_topology_desc(name, backend.platform, **options)
    place = SingleDeviceSharding(found.devices[0])
    fn, args = case.built()
    placed = [arg.update(sharding=place) for arg in args]
    text = jax.jit(fn).lower(*placed).compile().as_text() or ""
    if len(re.findall("estimated_cycles", text)) != 1 or "copy-done" in text:
        return None
    assert machine.chip.clock_hz
    return estimated_cycles(text) / machine.chip.clock_hz


def found_s(case: Case) -> float:
    """Our seconds, with nothing kept in scratch memory."""
    chip = load_machine(case.chip, 4).chip
    known = compile_program(capture(*case.built()).program, TPU, chip.tile)
    (each,) = (p for p in known.kernels.kernels if p.fusion.kind is FusionKind.PRODUCT)
    traffic = each.traffic(())
    return kernel_time(each.fusion.root, each.fusion.work, traffic, chip).seconds


@benchmark(
    ONLY,
    out=STORED,
)
def main(options: Options) -> None:
    """Compile, compare, print and save."""
    rows: list[dict[str, Any]] = []
    for case in cases():
        told = told_s(case) if options.only in case.name else None
        if told is None:
            continue
        found = found_s(case)
        rows.append(
            {
                "case": case.name,
                "compiled_s": told,
                "predicted_s": found,
                "error": found / told - 1,
            }
        )
        print(f"{1e3 * told:8.2f} ms {100 * rows[-1]['error']:+6.1f} %  {case.name}")
    summary = {
        chip: {"cases": len(errors), "median": statistics.median(errors),
               "largest": max(errors)}
        for chip in CHIPS
        if (errors := [abs(r["error"]) for r in rows if r["case"].startswith(chip)])
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    versions = {name: version(name) for name in ("jax", "libtpu")}
    result = {"versions": versions, "summary": summary, "cases": rows}
    if not options.only:
        options.save(result)


if __name__ == "__main__":
    main()
