"""A mixture of experts: each token is routed to a few of many MLPs, up to their capacity.

- Lepikhin et al., "GShard: Scaling Giant Models with Conditional Computation and
  Automatic Sharding", ICLR 2021: two experts a token, places assigned within groups of
  tokens, dispatch and combine as products with one-hot arrays.
- Fedus et al., "Switch Transformers: Scaling to Trillion Parameter Models with Simple and
  Efficient Sparsity", JMLR 2022: one expert a token, capacity factor, balance loss.
- Zoph et al., "ST-MoE: Designing Stable and Transferable Sparse Expert Models", 2022: the
  loss on large logits.
- Dai et al., "DeepSeekMoE: Towards Ultimate Expert Specialization in Mixture-of-Experts
  Language Models", 2024: experts that all tokens share.

Left out: GShard's random choice of whether a second expert is used, and Switch's noise on
the router's inputs.

Letters: B batch, S sequence, D d_model, F d_ff, G groups, T tokens of a group, E experts,
C capacity.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from zoo.attention import ACTIVATIONS, Mlp
from zoo.workload import check_numbers


@dataclass(frozen=True, slots=True)
class Routing:
    """Parameters of routing.

    experts: E.
    choices: number of experts that a token is routed to.
    group: T, tokens among which places are assigned; all tokens if there are fewer.
    capacity_factor: places of an expert, over those needed by uniform routing.
    shared: further experts that process every token.
    balance, router_z: coefficients of the two auxiliary losses.
    """

    experts: int
    choices: int = 2
    group: int = 2048
    capacity_factor: float = 1.0
    shared: int = 0
    balance: float = 0.01
    router_z: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("shared",))
        if self.choices > self.experts:
            raise ValueError(
                f"a token asks 1 to {self.experts} of {self.experts} experts, "
                f"not {self.choices}"
            )
        if self.capacity_factor == 0:
            raise ValueError("capacity_factor is above 0, not 0: experts need places")

    def capacity(self, tokens: int) -> int:
        """C, places of an expert in a group of `tokens`.

        Never more than `tokens`, as none asks an expert twice. A capacity factor of
        experts / choices or more gives just that: nothing is dropped.
        """
        needed = self.choices * tokens * self.capacity_factor / self.experts
        return min(ceil(needed), tokens)


class Measured(NamedTuple):
    """Scalars of one mixture, or their sums over several.

    balance: 1 for uniform routing, E if all tokens are routed to one expert.
    router_z: the mean square of the log of what the router's softmax divides by.
    dropped: the share of all choices beyond the capacity, 0 to 1.
    """

    balance: Array
    router_z: Array
    dropped: Array


class Routes(NamedTuple):
    """The place of each token among the places of the experts, [G, T, E, C].

    dispatch: 1 at the places of a token, else 0; at most one token has a place.
    combine: the weight of the expert's output there, else 0.
    """

    dispatch: Array
    combine: Array


def route(logits: Array, choices: int, capacity: int) -> tuple[Routes, Measured]:
    """Places for the tokens that score experts by `logits` [G, T, E], 32-bit floats.

    In each group the first choices of all tokens take places before any second choice,
    earlier tokens before later ones. A choice that finds its expert full is dropped.
    Several choices are weighted to a sum of 1 (GShard); a single one by its probability,
    through which the router learns (Switch).
    """
    probabilities = jax.nn.softmax(logits, axis=-1)
    weights, chosen = jax.lax.top_k(probabilities, choices)
    if choices > 1:
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    asked = [jax.nn.one_hot(chosen[..., k], logits.shape[-1]) for k in range(choices)]
    dispatch = combine = jnp.zeros((*logits.shape, capacity))
    taken = jnp.zeros_like(logits[:, :1])
    for k, expert in enumerate(asked):
        place = jnp.cumsum(expert, axis=1) - expert + taken
        taken = taken + jnp.sum(expert, axis=1, keepdims=True)
        place = jnp.sum(place * expert, axis=-1).astype(jnp.int32)
        # A place beyond the last gives a row of zeros: the choice is dropped.
        slot = jax.nn.one_hot(place, capacity)
        sent = expert[..., None] * slot[..., None, :]
        dispatch = dispatch + sent
        combine = combine + weights[..., k, None, None] * sent
    measured = Measured(
        balance_loss(probabilities, asked[0]),
        jnp.mean(jnp.square(jax.nn.logsumexp(logits, axis=-1))),
        1.0 - jnp.sum(dispatch) / chosen.size,
    )
    return Routes(dispatch, combine), measured


def balance_loss(probabilities: Array, first: Array) -> Array:
    """E times the sum over experts of f P, mean over groups (Switch, equations 4 to 6).

    probabilities [G, T, E] of the router; their mean in a group is P.
    first [G, T, E]: one-hot first choices; their mean in a group is f.
    """
    asked, likely = jnp.mean(first, axis=1), jnp.mean(probabilities, axis=1)
    experts = probabilities.shape[-1]
    return experts * jnp.mean(jnp.sum(asked * likely, axis=-1))


class Experts(nn.Module):
    """MLPs of which a few process each token; dropped choices add nothing.

    The router computes in float32.
    """

    routing: Routing
    d_ff: int
    activation: str = "relu"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Measured]:
        """[B, S, D] of x [B, S, D]."""
        groups = in_groups(x, self.routing.group).astype(self.dtype)
        _, tokens, d_model = groups.shape
        router = nn.Dense(self.routing.experts, use_bias=False, name="router")
        routes, measured = route(
            router(groups.astype(jnp.float32)),
            self.routing.choices,
            self.routing.capacity(tokens),
        )
        dispatch, combine = (places.astype(self.dtype) for places in routes)
        drawn = nn.initializers.lecun_normal(batch_axis=0)
        shape = (self.routing.experts, d_model, self.d_ff)
        up = self.param("up", drawn, shape).astype(self.dtype)
        down = self.param("down", drawn, (shape[0], shape[2], shape[1]))
        sent = jnp.einsum("gtec,gtd->egcd", dispatch, groups)
        hidden = jnp.einsum("egcd,edf->egcf", sent, up)
        hidden = ACTIVATIONS[self.activation](hidden)
        back = jnp.einsum("egcf,efd->egcd", hidden, down.astype(self.dtype))
        y = jnp.einsum("gtec,egcd->gtd", combine, back).reshape(x.shape)
        if self.routing.shared:
            width = self.routing.shared * self.d_ff
            y = y + Mlp(width, self.activation, dtype=self.dtype, name="shared")(x)
        return y, measured


def in_groups(x: Array, group: int) -> Array:
    """Tokens [G, T, D] of x [B, S, D], in their order; T is `group`, or B S if fewer."""
    batch, sequence, features = x.shape
    return x.reshape(-1, group_size(group, batch, sequence), features)


def group_size(group: int, batch: int, sequence: int) -> int:
    """T: `group`, or all tokens of a batch if fewer; `ValueError` if it cuts a group."""
    tokens = batch * sequence
    if tokens % min(group, tokens):
        raise ValueError(
            f"groups of {group} do not divide {tokens} tokens, {batch} sequences of "
            f"{sequence}; give a divisor, or {tokens} or more for one group"
        )
    return min(group, tokens)
