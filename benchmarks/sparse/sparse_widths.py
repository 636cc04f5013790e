"""Our sparse products beside SciPy's, over widths, densities, formats, dtypes and shapes.

Both run in turn in one process on the same matrix, in alternating blocks of calls; a figure
is SciPy's least CPU time of a call divided by ours (above 1, ours is faster). Both use
one thread. Each call of ours checks the indices of its operands.

    python -m benchmarks sparse sparse_widths [--size 4096] [--passes 7]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.sparse as ss
from rich.console import Console
from rich.table import Table

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option

WIDTHS = (1, 2, 3, 7, 16, 32, 33, 64, 100, 128)
DENSITIES = (0.001, 0.01, 0.05, 0.1, 0.5)
_BLOCK_S = 2e-3
"""Least CPU seconds of a block of calls, well above the clock's resolution."""


def alternating(ours: Callable[[], Any], other: Callable[[], Any], passes: int) -> Any:
    """The least CPU seconds of a call of each, from alternating blocks of calls."""
    least = [float("inf")] * 2
    ours()
    start = time.process_time()
    other()
    calls = max(1, int(_BLOCK_S / max(time.process_time() - start, 1e-6)))
    for _ in range(passes):
        for i, run in enumerate((ours, other)):
            start = time.process_time()
            for _ in range(calls):
                run()
            least[i] = min(least[i], (time.process_time() - start) / calls)
    return least


def matrix_of(shape: tuple[int, int], density: float, kind: str) -> Any:
    """A sparse matrix whose elements are scattered, in blocks, or mostly in few rows."""
    rng = np.random.default_rng(0)
    if kind == "blocks":
        blocks = ss.random(shape[0] // 4, shape[1] // 4, density, "csr", rng=rng)
        return ss.kron(blocks, np.ones((4, 4)), "csr")
    count = int(density * shape[0] * shape[1])
    if kind == "unbalanced":
        rows = (shape[0] * rng.random(count) ** 4).astype(np.int32)
        columns = rng.integers(0, shape[1], count, np.int32)
        return ss.coo_array((np.ones(count), (rows, columns)), shape).tocsr()
    return ss.random(*shape, density, "csr", rng=rng)


def product_case(
    name: str, matrix: Any, widths: tuple[int, ...], passes: int, **how: Any
) -> dict[str, Any]:
    """SciPy's time over ours for a sparse matrix times dense ones of these widths.

    how: the format, the dtype of elements and that of indices.
    """
    form, dtype = how.get("form", "csr"), how.get("dtype", "float32")
    operand = matrix.astype(dtype)
    blocks = form.startswith("bsr")
    operand = operand.tobsr((4, 4)) if blocks else operand.asformat(form)
    if form != "coo":
        operand.sort_indices()
        index = how.get("index", "int32")
        operand.indptr = operand.indptr.astype(index)
        operand.indices = operand.indices.astype(index)
    figures: dict[int, list[float]] = {}
    rng = np.random.default_rng(1)
    for width in widths:
        dense = rng.standard_normal((matrix.shape[1], width)).astype(dtype)
        run = mw.sparse(lambda s, d: s @ d, {"s": form})
        with jax.enable_x64(dtype == "float64"):
            np.testing.assert_allclose(
                run(operand, dense), operand @ dense, rtol=1e-3, atol=1e-3
            )
            figures[width] = alternating(
                lambda run=run, d=dense: run(operand, d),
                lambda d=dense: operand @ d,
                passes,
            )
    return {"name": name, "widths": figures}


def square_case(name: str, matrix: Any, passes: int) -> dict[str, Any]:
    """Seconds of a sparse matrix times itself, with a sparse result."""
    run = mw.sparse(lambda a, b: a @ b, {"a": "csr", "b": "csr", "out": "csr"})
    operand = ss.csr_array(matrix.astype("float32"))
    operand.sort_indices()
    found = alternating(
        lambda: run(operand, operand), lambda: operand @ operand, passes
    )
    return {"name": name, "seconds": found}


def cases(size: int, passes: int) -> list[dict[str, Any]]:
    """The figures of products with dense matrices."""
    shape, few = (size, size), (1, 3, 16, 33, 64, 128)
    found = [
        product_case(
            f"CSR, {100 * density:g} %",
            matrix_of(shape, density, "scattered"),
            WIDTHS if density < 0.5 else few,
            passes if density < 0.05 else 3,
        )
        for density in DENSITIES
    ]
    square = matrix_of(shape, 0.01, "scattered")
    others: list[tuple[str, Any, dict[str, Any]]] = [
        ("CSC", square, {"form": "csc"}),
        ("COO", square, {"form": "coo"}),
        ("BSR 4x4, full blocks", matrix_of(shape, 0.01, "blocks"), {"form": "bsr:4"}),
        ("CSR, float64", square, {"dtype": "float64"}),
        ("CSR, int64 indices", square, {"index": "int64"}),
        ("CSR, tall", matrix_of((16 * size, size // 16), 0.01, "scattered"), {}),
        ("CSR, wide", matrix_of((size // 16, 16 * size), 0.01, "scattered"), {}),
        ("CSR, unbalanced rows", matrix_of(shape, 0.01, "unbalanced"), {}),
    ]
    for name, matrix, how in others:
        found.append(product_case(f"{name}, 1 %", matrix, few, passes, **how))
    thin = {kind: matrix_of(shape, 0.001, kind) for kind in ("scattered", "blocks")}
    for name, _, how in others[:3]:
        kind = "blocks" if "blocks" in name else "scattered"
        found.append(product_case(f"{name}, 0.1 %", thin[kind], few, passes, **how))
    return found


@benchmark(
    option("--size", type=int, default=4096),
    option("--passes", type=int, default=7),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print tables and write the results."""
    size, passes = options.size, options.passes
    found = cases(size, passes)
    table = Table("SciPy's time / ours, by columns", *map(str, WIDTHS))
    for case in found:
        ratios = {w: other / ours for w, (ours, other) in case["widths"].items()}
        shown = [f"{ratios[w]:.2f}" if w in ratios else "" for w in WIDTHS]
        table.add_row(case["name"], *shown)
    Console(width=140).print(table)
    squares = [
        square_case(f"{100 * d:g} %", matrix_of((size, size), d, "scattered"), 3)
        for d in (0.001, 0.01, 0.02)
    ]
    table = Table("sparse times sparse, CSR", "ours, ms", "SciPy, ms", "ratio")
    for case in squares:
        ours, other = case["seconds"]
        row = f"{1e3 * ours:.2f}", f"{1e3 * other:.2f}", f"{other / ours:.2f}"
        table.add_row(case["name"], *row)
    Console().print(table)
    options.save({"size": size, "passes": passes, "cases": found, "squares": squares})


if __name__ == "__main__":
    main()
