"""Programs of `peers.py`: train steps of under a second on 8 virtual devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from zoo import d4pg, gpt, moe, resnet, vit
from zoo.training import new_state, train_step_of


@dataclass(frozen=True, slots=True)
class Case:
    """A train step `(state, batch) -> (state, metrics)`.

    forward: scores of (parameters, batch), for AUTO, which was made for such functions.
    """

    name: str
    target: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    forward: Callable[[Any, Any], Any] | None = None


@cache
def built(case: Case) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments, made once."""
    return case.target()


@cache
def flat(case: Case) -> tuple[list[str], Callable[..., list[Any]]]:
    """Paths of the results, and the step as a function from leaves to leaves."""
    fn, args = built(case)
    treedef = jax.tree.structure(args)
    paths, _ = jax.tree_util.tree_flatten_with_path(jax.eval_shape(fn, *args))
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    return names, lambda *leaves: jax.tree.leaves(fn(*treedef.unflatten(leaves)))


def mlp_scores(params: Sequence[jax.Array], batch: Mapping[str, jax.Array]) -> Any:
    """Scores [B, 256] of `batch["x"]` [B, 256]."""
    x = batch["x"]
    for weights in params[:-1]:
        x = jax.nn.relu(x @ weights)
    return x @ params[-1]


def mlp() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Three layers without biases under Adam, squared error, 256 rows."""

    def loss(params: Any, batch: Any) -> jax.Array:
        return jnp.mean((mlp_scores(params, batch) - batch["y"]) ** 2)

    rng = np.random.default_rng(0)
    widths = (256, 1024, 1024, 256)
    params = [
        jnp.asarray(rng.standard_normal((m, n), np.float32) * np.float32(m**-0.5))
        for m, n in pairwise(widths)
    ]
    optimizer = optax.adam(1e-3)
    rows = {name: rng.standard_normal((256, 256), np.float32) for name in "xy"}
    return train_step_of(loss, optimizer), (new_state(params, optimizer), rows)


def vit_scores(params: Any, batch: Any) -> Any:
    """Scores of the small ViT."""
    net = vit.classifier(vit.TINY).net
    return net.apply({"params": params}, batch["image"])


def moe_scores(params: Any, batch: Any) -> Any:
    """Scores of the small mixture of experts."""
    return moe.MoE(moe.TINY).apply({"params": params}, batch["inputs"])


CASES = (
    Case("mlp", mlp, mlp_scores),
    Case("d4pg", d4pg.tiny),
    Case("gpt", gpt.tiny, lambda params, batch: gpt.logits(params, batch["inputs"])),
    Case("vit", vit.tiny, vit_scores),
    Case("moe", moe.tiny, moe_scores),
    Case("resnet", resnet.tiny),
)
