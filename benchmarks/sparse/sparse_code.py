"""CSR and other formats times a dense matrix: our code, SciPy, jax.experimental.sparse.

All run in turn in one process, in shuffled passes, on the same matrix; the figure is the
least CPU time of a call (all threads), so that other processes do not count. "ours, dense"
is the code that the same path makes without a format, and "XLA, dense" XLA's product of the
dense matrix. In a second table, the elements lie in full blocks of 4 x 4.

    python -m benchmarks sparse sparse_code [--size 4096] [--columns 64] [--passes 9]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as ss
from jax.experimental import sparse as jax_sparse
from rich.console import Console
from rich.table import Table

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option

FORMATS = ("csr", "csc", "coo", "bsr:4")
DENSITIES = (0.001, 0.01, 0.05)


def product(matrix: Any, dense: Any) -> Any:
    """The product that all of them compute."""
    return matrix @ dense


def runners(matrix: Any, dense: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Each way to multiply, by name, as a function without arguments."""
    found: dict[str, Callable[[], Any]] = {}
    for form in FORMATS:
        operand = (
            matrix.tobsr(blocksize=(4, 4)) if "bsr" in form else matrix.asformat(form)
        )
        if form != "coo":  # as from a file; otherwise each call sorts the blocks
            operand.sort_indices()
        ours = mw.sparse(product, {"matrix": form})
        found[f"ours, {form}"] = lambda f=ours, m=operand: f(m, dense)
        found[f"SciPy, {form}"] = lambda m=operand: m @ dense
    jitted = jax.jit(product)
    right = jnp.asarray(dense)
    for name, kind in (("BCSR", jax_sparse.BCSR), ("BCOO", jax_sparse.BCOO)):
        left = kind.from_scipy_sparse(matrix)
        found[f"JAX, {name}"] = lambda m=left: jitted(m, right).block_until_ready()
    array = matrix.toarray()
    plain = mw.sparse(product)
    found["ours, dense"] = lambda: plain(array, dense)
    whole = jnp.asarray(array)
    found["XLA, dense"] = lambda: jitted(whole, right).block_until_ready()
    return found


def measure(run: dict[str, Callable[[], Any]], passes: int) -> dict[str, float]:
    """The least CPU seconds of one call of each, from shuffled passes."""
    rng = random.Random(0)
    least = dict.fromkeys(run, float("inf"))
    for _ in range(passes):
        for name in rng.sample([*run], len(run)):
            start = time.process_time()
            run[name]()
            least[name] = min(least[name], time.process_time() - start)
    return least


def case(
    size: int, columns: int, density: float, passes: int, block: int = 1
) -> dict[str, Any]:
    """The figures of one density, after a check that all results are equal.

    block: rows and columns of the blocks that have no zeros.
    """
    rng = np.random.default_rng(0)
    blocks = ss.random(size // block, size // block, density, "csr", np.float32, rng)
    matrix = ss.kron(blocks, np.ones((block, block), np.float32), "csr")
    dense = rng.standard_normal((size, columns)).astype(np.float32)
    run = runners(matrix, dense)
    wanted = matrix @ dense
    for name, each in run.items():
        error = float(np.abs(np.asarray(each()) - wanted).max())
        if error > 1e-3:
            raise AssertionError(f"{name} is off by {error}")
    return {"density": density, "block": block, "cpu_s": measure(run, passes)}


@benchmark(
    option("--size", type=int, default=4096),
    option("--columns", type=int, default=64),
    option("--passes", type=int, default=9),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure, print a table and write the results."""
    sizes = options.size, options.columns
    cases = [
        case(*sizes, density, options.passes, block)
        for block in (1, 4)
        for density in DENSITIES
    ]
    for block in (1, 4):
        shown = [c for c in cases if c["block"] == block]
        titles = [f"{100 * c['density']:g} %" for c in shown]
        table = Table(f"CPU ms of a call, blocks of {block}", *titles)
        for name in shown[0]["cpu_s"]:
            table.add_row(name, *(f"{1e3 * c['cpu_s'][name]:.2f}" for c in shown))
        Console().print(table)
    result = {"size": sizes[0], "columns": sizes[1], "passes": options.passes}
    options.save({**result, "cases": cases})


if __name__ == "__main__":
    main()
