"""One pipeline of a decoder, by us or by JaxPP, stepped when its parent says so.

    PYTHON benchmarks/partitioning/pipeline_case.py SIDE CASE < lines > answers

PYTHON is an interpreter that has Meshwright (SIDE `ours`) or JaxPP (SIDE `jaxpp`); CASE is
the JSON of a `Case`. The first answer has the losses of the pipeline and of the step on one
device; each further line is answered by the seconds of one step. Nothing of `benchmarks` is
imported, which the environment of JaxPP lacks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

VOCABULARY, TOKENS, RATE, HEAD = 512, 64, 0.1, 64
NUM_LAYERS, NUM_STEPS = 8, 3

type Params = dict[str, Any]
type Mark = Callable[[jax.Array, int], jax.Array]
"""Marks the activations behind a stage; called with the stage's number."""


@dataclass(frozen=True)
class Case:
    """A decoder and its pipeline; each data-parallel device has one sequence a microbatch.

    num_stages: several times `num_submeshes` if stages are interleaved.
    """

    width: int
    num_microbatches: int
    schedule: str
    num_submeshes: int = 4
    num_stages: int = 4

    @property
    def name(self) -> str:
        """Schedule, stages, submeshes, microbatches and width."""
        return (
            f"{self.schedule}, {self.num_stages} stages on {self.num_submeshes}, "
            f"{self.num_microbatches} microbatches, width {self.width}"
        )

    @property
    def num_replicas(self) -> int:
        """Data-parallel devices of each submesh."""
        return 8 // self.num_submeshes


# -- the model ---------------------------------------------------------------------


def params_of(case: Case) -> Params:
    """Weights of the decoder, from one seed."""
    width = case.width
    keys = iter(jax.random.split(jax.random.key(0), 4 * NUM_LAYERS + 2))

    def weight(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / np.sqrt(shape[0])

    layers = [
        {
            "qkv": weight(width, 3 * width),
            "out": weight(width, width),
            "up": weight(width, 4 * width),
            "down": weight(4 * width, width),
        }
        for _ in range(NUM_LAYERS)
    ]
    return {
        "embedding": weight(VOCABULARY, width),
        "layers": layers,
        "head": weight(width, VOCABULARY),
    }


def normed(x: jax.Array) -> jax.Array:
    """The features of each token with mean 0 and variance 1."""
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer_of(weights: Params, x: jax.Array) -> jax.Array:
    """Causal attention and two dense layers, each with a residual connection."""
    heads = (*x.shape[:2], x.shape[-1] // HEAD, HEAD)
    q, k, v = (
        p.reshape(heads) for p in jnp.split(normed(x) @ weights["qkv"], 3, axis=-1)
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(HEAD)
    mask = np.tril(np.ones((TOKENS, TOKENS), bool))
    scores = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape)
    x = x + mixed @ weights["out"]
    return x + jax.nn.gelu(normed(x) @ weights["up"]) @ weights["down"]


def loss_of(params: Params, tokens: jax.Array, mark: Mark, num_stages: int) -> Any:
    """Mean cross-entropy of the next tokens."""
    x = params["embedding"][tokens[:, :-1]]
    per_stage = NUM_LAYERS // num_stages
    for i, weights in enumerate(params["layers"]):
        x = layer_of(weights, x)
        if i + 1 < NUM_LAYERS and (i + 1) % per_stage == 0:
            x = mark(x, i // per_stage)
    scores = jax.nn.log_softmax(normed(x) @ params["head"])
    picked = jnp.take_along_axis(scores, tokens[:, 1:, None], -1)
    # JaxPP wants the last stage marked, too.
    return mark(-jnp.mean(picked), num_stages - 1)


def updated(params: Params, grads: Params) -> Params:
    """Weights after a step of gradient descent."""
    return jax.tree.map(lambda w, g: w - RATE * g, params, grads)


def unmarked(x: jax.Array, stage: int) -> jax.Array:
    """No mark: the step on one device."""
    del stage
    return x


def whole_step(
    params: Params, tokens: jax.Array, *, mark: Mark, num_stages: int
) -> tuple[Params, jax.Array]:
    """A train step of the whole batch, as one function."""
    loss, grads = jax.value_and_grad(loss_of)(params, tokens, mark, num_stages)
    return updated(params, grads), loss


# -- the two pipelines -------------------------------------------------------------


def ours(case: Case) -> Callable[..., Any]:
    """The step by `mw.pipeline`."""
    import meshwright as mw

    def mark(x: jax.Array, stage: int) -> jax.Array:
        last = stage + 1 == case.num_stages
        return x if last else mw.stage(x, f"stage {stage + 1}")

    step = partial(whole_step, mark=mark, num_stages=case.num_stages)
    return mw.pipeline(
        jax.jit(step, donate_argnums=0),
        {"stage": case.num_submeshes, "data": case.num_replicas},
        [mw.data_parallel("data")],
        microbatches=case.num_microbatches,
        schedule=case.schedule,
    )


def jaxpps(case: Case) -> Callable[..., Any]:
    """The step by JaxPP; gradients of microbatches are added up, then divided."""
    import jaxpp.api as jaxpp  # pyright: ignore[reportMissingImports]
    from jax.sharding import PartitionSpec

    shape = case.num_submeshes, case.num_replicas
    devices = np.array(jax.devices()).reshape(shape)
    mesh = jaxpp.MpmdMesh(jax.sharding.Mesh(devices, ("stage", "data")), "stage")
    stages = case.num_stages
    schedule = {
        "1f1b": lambda: jaxpp.Std1F1B(stages),
        "eager-1f1b": lambda: jaxpp.Eager1F1B(stages),
        "zb-h1": lambda: jaxpp.ZeroBubble(stages),
        "interleaved": lambda: jaxpp.Interleaved1F1B(stages, case.num_submeshes),
    }[case.schedule]()

    def loss(params: Params, tokens: jax.Array) -> jax.Array:
        def mark(x: jax.Array, stage: int) -> jax.Array:
            del stage
            return jaxpp.mark_stage_end(x)

        return loss_of(params, tokens, mark, stages) / case.num_microbatches

    cut = PartitionSpec(None, "data")

    def step(params: Params, tokens: jax.Array) -> tuple[Params, jax.Array]:
        gradient = partial(jax.value_and_grad(loss), params)
        total, grads = jaxpp.treduce(gradient, tokens, schedule=schedule,
                                     operation=jaxpp.Add)  # fmt: skip
        return updated(params, grads), total

    jitted = jaxpp.mpmd_jit_with_loop(
        step, mesh, in_specs=(PartitionSpec(), cut), donate_argnums=0
    )

    def called(params: Params, tokens: jax.Array) -> tuple[Params, jax.Array]:
        parts = tokens.reshape(case.num_microbatches, -1, tokens.shape[-1])
        with mesh:
            return jitted(params, parts)

    return called


SIDES = {"ours": ours, "jaxpp": jaxpps}


# -- a session ---------------------------------------------------------------------


def number(loss: Any) -> float:
    """A loss on any devices as a number."""
    return float(np.asarray(getattr(loss, "to_mpmd_local_array", loss)))


def waited(outputs: Any) -> Any:
    """The outputs, when all of them have been computed."""
    leaves = jax.tree.leaves(outputs)
    jax.block_until_ready([getattr(x, "to_mpmd_local_array", x) for x in leaves])
    return outputs


def main() -> None:
    """Compile, take some steps beside the step on one device, then one step a line."""
    side, case = sys.argv[1], Case(**json.loads(sys.argv[2]))
    sequences = case.num_microbatches * case.num_replicas
    shape = sequences, TOKENS + 1
    tokens = np.asarray(jax.random.randint(jax.random.key(1), shape, 0, VOCABULARY))
    step, params, losses = SIDES[side](case), params_of(case), []
    for _ in range(NUM_STEPS):
        params, loss = waited(step(params, tokens))
        losses.append(number(loss))
    alone = jax.jit(partial(whole_step, mark=unmarked, num_stages=1), donate_argnums=0)
    whole, expected, alone_s = params_of(case), [], 0.0
    for _ in range(NUM_STEPS):
        began = time.perf_counter()
        whole, loss = waited(alone(whole, tokens))
        alone_s = time.perf_counter() - began
        expected.append(number(loss))
    told = {"losses": losses, "expected": expected, "alone_s": alone_s}
    print(json.dumps(told | {"jax": jax.__version__}), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        params, loss = waited(step(params, tokens))
        print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
