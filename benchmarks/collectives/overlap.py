"""Simulated steps of Megatron layers with and without product loops (`mw.overlap`).

    python -m benchmarks collectives overlap [--batch 128] [--gather shared]

Layers of the paper's regime (Wang et al., ASPLOS 2023): wide models on TPU pods, with
sequence parallelism. It prints one row per machine, mesh and width: the step without
loops, the speed-up of the loops that pass the cost gate, and of all loops.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from benchmarks.harness import Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import meshwright as mw
from meshwright.machine import Machine, load_machine
from meshwright.partitioner.tactics import Tactic

MESHES = (
    ("tpu-v4", {"data": 16, "model": 4}),
    ("tpu-v4", {"data": 64, "model": 8}),
    ("tpu-v4", {"data": 4, "model": 16}),
    ("tpu-v5e", {"data": 2, "model": 8}),
    ("tpu-v6e", {"data": 4, "model": 4}),
    ("h100", {"data": 2, "model": 8}),
)
WIDTHS = (2048, 8192, 12288, 18432)
LAYERS = 2


def loss(weights: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """The mean square of the output of some feed-forward layers."""
    for up, down in weights:
        hidden = jax.nn.relu(jnp.einsum("bsd,df->bsf", x, up))
        x = x + jnp.einsum("bsf,fd->bsd", hidden, down)
    return jnp.mean(x.astype(jnp.float32) ** 2)


def step_s(
    machine: Machine,
    mesh: dict[str, int],
    sizes: tuple[int, int],
    gather: str,
    more: Sequence[Tactic] = (),
) -> float:
    """Simulated seconds of a gradient; sizes: batch and width."""
    batch, width = sizes
    shape = jax.ShapeDtypeStruct
    layer = (
        shape((width, 4 * width), jnp.bfloat16),
        shape((4 * width, width), jnp.bfloat16),
    )
    tactics = [
        mw.data_parallel("data", "x"),
        mw.megatron("model", vocabulary=False),
        mw.sequence_parallel("model"),
        *more,
    ]
    step = mw.partition(jax.grad(loss), mesh, tactics, gather=gather)
    x = shape((batch, 2048, width), jnp.bfloat16)
    return step.plan([layer] * LAYERS, x).on(machine).step_time_s


@benchmark(
    option("--batch", type=int, default=128),
    option("--gather", default="shared", choices=("shared", "at_use")),
)
def main(options: Options) -> None:
    """Print the table."""
    print(f"{'machine':8} {'mesh':18} {'width':>6} {'ms':>9} {'gated':>6} {'all':>6}")
    for name, mesh in MESHES:
        machine = load_machine(name, mesh["data"] * mesh["model"])
        for width in WIDTHS:
            sizes = options.batch, width
            case = machine, mesh, sizes, options.gather
            before = step_s(*case)
            gated = before / step_s(*case, [mw.overlap("model", machine=machine)])
            every = before / step_s(*case, [mw.overlap("model")])
            said = f"{mesh['data']} x {mesh['model']}"
            options.note(f"{name}/{said}/{width}/step", before, "s")
            options.note(f"{name}/{said}/{width}/speed-up, gated", gated)
            options.note(f"{name}/{said}/{width}/speed-up, all", every)
            print(
                f"{name:8} {said:18} {width:6} {1e3 * before:9.2f} "
                f"{gated:6.3f} {every:6.3f}"
            )


if __name__ == "__main__":
    main()
