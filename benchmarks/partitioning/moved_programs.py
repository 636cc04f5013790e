"""Programs that move data along a dim that is cut, and the bytes that devices receive."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import meshwright as mw

RNG = np.random.default_rng(0)
ROW = 128  # bytes of one row of U


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


U, V, H, W = normal(64, 32), normal(64, 32), normal(4, 64, 16), normal(16, 96)
TAPS = normal(4, 16)


def heat(u):
    return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u)


def inner_heat(u):
    return u.at[1:-1].set(u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))


def inner_heat_2d(u):
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (around - 4 * u[1:-1, 1:-1]))


def ghosts(u, mode):
    wide = jnp.pad(u, ((1, 1), (0, 0)), mode=mode)
    return wide[2:] + wide[:-2] - 2 * wide[1:-1]


def ghosts_2d(u, mode):
    wide = jnp.pad(u, 1, mode=mode)
    return wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * u


def recurrence(a, b):
    """h[t] = a[t] h[t - 1] + b[t], by pairs of pairs."""

    def join(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return lax.associative_scan(join, (a, b), axis=0)[1]


def rotary(u):
    a, b = jnp.split(u, 2, 0)
    return jnp.concatenate([a * 0.8 - b * 0.6, b * 0.8 + a * 0.6], 0)


def swiglu(h, w):
    gate, up = jnp.split(h @ w, 2, -1)
    return jax.nn.silu(gate) * up


def attention_inputs(h, w):
    q, k, v = jnp.split(h @ w, 3, -1)
    return q * k + v


def upwind(u):
    return u - 0.1 * jnp.concatenate([u[:1] * 0, jnp.diff(u, axis=0)], 0)


def limited(u):
    """Limited slopes of cells, from the differences at their 65 faces."""
    faces = jnp.diff(u, axis=0, prepend=u[:1], append=u[-1:])
    left, right = faces[:-1], faces[1:]
    return jnp.where(left * right > 0, jnp.minimum(jnp.abs(left), jnp.abs(right)), 0.0)


def causal_convolution(h, w):
    wide = jnp.pad(h, ((0, 0), (3, 0), (0, 0)))
    return jax.nn.silu(sum(w[k] * wide[:, k : k + h.shape[1]] for k in range(4)))


def shifted(h):
    return jnp.pad(h, ((0, 0), (1, 0), (0, 0)))[:, :-1]


def shifted_behind_a_start(h):
    return jnp.concatenate([jnp.zeros_like(h[:, :1]), h[:, :-1]], 1)


def in_time(step):
    return lambda u: lax.scan(lambda c, _: (step(c), None), u, None, length=4)[0]


def grad(fn):
    return jax.grad(lambda *args: (jnp.sin(fn(*args)) ** 2).sum())


WINDOW = (2, 1), (1, 1), "SAME"
SHIFT = jnp.int32(3)

# Bytes that each device receives, those of an all-reduce counted twice. `jax.jit` with the
# same shardings: benchmarks/partitioning/moved_dims.py.
PROGRAMS = {
    "roll": (heat, (U,), 0, 2 * ROW),
    "roll, gradient": (grad(heat), (U,), 0, 6 * ROW),
    "roll, in time": (in_time(heat), (U,), 0, 8 * ROW),
    "roll, further than a part": (lambda u: jnp.roll(u, -20, 0), (U,), 0, 8 * ROW),
    "roll, two dims": (lambda u: jnp.roll(u, (1, -1), (0, 1)), (U,), 0, ROW),
    "pad": (lambda u: jnp.pad(u, ((4, 4), (0, 0))), (U,), 0, 6 * ROW),
    "ghosts, edge": (lambda u: ghosts(u, "edge"), (U,), 0, 6 * ROW),
    "ghosts, wrap": (lambda u: ghosts(u, "wrap"), (U,), 0, 2 * ROW),
    "ghosts, zeros": (lambda u: ghosts(u, "constant"), (U,), 0, 2 * ROW),
    "ghosts, reflect": (lambda u: ghosts(u, "reflect"), (U,), 0, 2 * ROW),
    "ghosts, both dims": (
        in_time(lambda u: ghosts_2d(u, "constant")), (U,), 0, 8 * ROW
    ),
    "ghosts, both dims, edge": (lambda u: ghosts_2d(u, "edge"), (U,), 0, 10 * ROW),
    "tokens": (shifted, (H,), 1, 2 * ROW),
    "tokens, gradient": (grad(shifted), (H,), 1, 4 * ROW),
    "causal convolution": (causal_convolution, (H, TAPS), (1,), 12 * ROW),
    "causal convolution, gradient": (
        grad(causal_convolution), (H, TAPS), (1,), 24 * ROW
    ),
    "tokens, start": (shifted_behind_a_start, (H,), 1, 2 * ROW),
    "difference": (lambda u: (jnp.diff(u, axis=0) ** 2).sum(), (U,), 0, ROW + 8),
    "difference, largest": (lambda u: jnp.diff(u, axis=0).max(), (U,), 0, ROW + 8),
    "difference, gradient": (grad(lambda u: u[2:] - u[:-2]), (U,), 0, 4 * ROW),
    "interior": (inner_heat, (U,), 0, 2 * ROW),
    "interior, gradient": (grad(inner_heat), (U,), 0, 4 * ROW),
    "interior, in time": (in_time(inner_heat), (U,), 0, 8 * ROW),
    "interior, 2D": (grad(in_time(inner_heat_2d)), (U,), 0, 16 * ROW),
    "upwind": (upwind, (U,), 0, 4 * ROW),
    "limited slopes": (limited, (U,), 0, 2 * ROW),
    "gradient of a field": (lambda u: jnp.gradient(u, axis=0), (U,), 0, 6 * ROW),
    "strides": (grad(lambda u: u[::2] * u[1::2]), (U,), 0, 0),
    "strides, shifted": (grad(lambda u: u[2::2] - u[1:-1:2]), (U,), 0, 2 * ROW),
    "running sums": (lambda u: lax.associative_scan(jnp.add, u), (U,), 0, 13 * ROW),
    "recurrence": (recurrence, (U, V), 0, 23 * ROW),
    "recurrence, gradient": (grad(recurrence), (U, V), 0, 36 * ROW),
    "halves": (grad(lambda u: u[:32] + u[32:]), (U,), 0, 32 * ROW),
    "rotary": (rotary, (U,), 0, 24 * ROW),
    "joined": (lambda u, v: jnp.concatenate([u, v], 0), (U, V), 0, 16 * ROW),
    "gate and up": (swiglu, (H[:, 0], W), (None, 1), 192),
    "q, k and v": (attention_inputs, (H[:, 0], W), (None, 1), 192),
    "even window": (
        lambda u: lax.reduce_window(u, 0.0, lax.add, *WINDOW), (U,), 0, ROW
    ),
    "known position": (
        lambda u: lax.dynamic_slice_in_dim(u, 8, 48, 0), (U,), 0, 12 * ROW
    ),
    "unknown position": (
        lambda u, i: lax.dynamic_slice_in_dim(u, i, 56, 0), (U, SHIFT), (0,), 56 * ROW
    ),
    "last": (lambda u: 2 * u[-1], (U,), 0, 2 * ROW),
    "sort": (lambda u: jnp.sort(u, 0), (U,), 0, 14 * ROW),
    "sort, positions": (lambda u: jnp.argsort(u, 0), (U,), 0, 21 * ROW),
    "sort, two keys": (
        lambda u, v: lax.sort((u, v), dimension=0, num_keys=2), (U, V), 0, 28 * ROW
    ),
    "quantiles": (
        lambda u: jnp.nanquantile(u, jnp.array([0.1, 0.9]), 0), (U,), 0, 20 * ROW
    ),
    "top-k": (lambda h, w: lax.top_k(h @ w, 4), (H[:, 0], W), (None, 1), 896),
    "top-k, gradient": (
        grad(lambda h, w: lax.top_k(h @ w, 4)[0]), (H[:, 0], W), (None, 1), 1920
    ),
    "approximate top-k": (
        lambda h, w: lax.approx_max_k(h @ w, 4), (H[:, 0], W), (None, 1), 896
    ),
    "approximate least, gradient": (
        grad(lambda h, w: lax.approx_min_k(h @ w, 4)[0]), (H[:, 0], W), (None, 1), 1920
    ),
    "most of a part": (
        lambda u: lax.top_k(u, 6, axis=0), (U,), 0, 56 * ROW
    ),
}  # fmt: skip


def cut_dims(args: Sequence[Any], dims: Any) -> tuple[int | None, ...]:
    """The dim on which each argument is cut; `None` if it is not."""
    every = (dims,) * len(args) if isinstance(dims, int) else tuple(dims)
    return every + (None,) * (len(args) - len(every))


def sharded(
    fn: Callable[..., Any], args: Sequence[Any], dims: Any, mesh: dict[str, int]
) -> Any:
    """The function of one tuple, partitioned with its arrays cut on the given dims."""
    cuts = {f"args.{i}": d for i, d in enumerate(cut_dims(args, dims)) if d is not None}
    return mw.partition(lambda args: fn(*args), mesh, [mw.shard(cuts, "x")])


def received(plan: Any, num: int) -> float:
    """Bytes that each device receives in one step."""
    shares = {
        "all_reduce": 2, "all_gather": 1 - 1 / num, "reduce_scatter": 1 - 1 / num,
        "all_to_all": 1 - 1 / num, "permute": 1,
    }  # fmt: skip
    return sum(c.executions * c.bytes * shares[c.kind] for c in plan.collectives)
