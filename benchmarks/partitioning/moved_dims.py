"""Data moved along a cut dim: bytes of our device programs, and of `jax.jit`'s own.

For each program, the executions of collectives and the bytes that they make in one step on
one of 8 devices, in code compiled for CPU devices: `partition` with the dim cut, and
`jax.jit` with the same shardings of arguments.

    python -m benchmarks partitioning moved_dims [CASE ...]      prints a table in Markdown
"""

import os

from benchmarks.harness import Options, benchmark, option

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.partitioning.annotated import collectives
from benchmarks.partitioning.moved_programs import PROGRAMS, cut_dims, sharded


@benchmark(option("cases", nargs="*", metavar="CASE"))
def main(options: Options) -> None:
    """Print one row per program."""
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    print("| program | ours | `jax.jit` |")
    print("|---|---|---|")
    for name, (fn, args, dims, _) in PROGRAMS.items():
        if options.cases and name not in options.cases:
            continue
        specs = [
            PartitionSpec(*[None] * d, "x") if d is not None else PartitionSpec()
            for d in cut_dims(args, dims)
        ]
        ours = sharded(fn, args, dims, {"x": 8}).lower(args)
        shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
        theirs = jax.jit(fn, in_shardings=shardings).lower(*args)
        cells: list[str] = []
        for way, lowered in (("ours", ours), ("jit", theirs)):
            runs, mib = collectives(lowered)
            options.note(f"{name}/{way}/executions", runs)
            options.note(f"{name}/{way}/received", mib * 2**20, "B")
            cells.append(f"{runs} x, {mib * 2**20:,.0f} B")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
