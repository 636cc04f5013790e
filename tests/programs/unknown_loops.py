"""Programs with loops whose number of iterations depends on values, in several styles.

A comment `# loop` marks each line at which a plan must name a loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import meshwright as mw


def _normal(*shape: int) -> np.ndarray:
    """An array that is normal with variance 1 / its last dim."""
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)


N, D, VOCAB, LENGTH = 16, 32, 64, 12
_W = _normal(D, D) * 0.3
_SPD = _W @ _W.T + np.eye(D, dtype=np.float32)
_X = _normal(N, D)


# -- plain loops ---------------------------------------------------------------------------


def contraction(w, x):
    """A fixed point, until its change is small."""

    def changes(c):
        return jnp.abs(c[0] - c[1]).max() > 1e-4

    return lax.while_loop(  # loop
        changes, lambda c: (jnp.tanh(c[0] @ w), c[0]), (x + 1, x)
    )


def traced_bound(w, x, n):
    """`fori_loop` whose bound is an argument."""
    return lax.fori_loop(0, n, lambda i, x: jnp.tanh(x @ w), x)  # loop


def power_iteration(w, x):
    """The largest eigenvalue: each product sums over a dim that may be cut."""

    def step(c):
        v, _, old = c
        u = w @ v
        size = jnp.linalg.norm(u)
        return u / size, old, size

    def goes_on(c):
        return jnp.abs(c[1] - c[2]) > 1e-3

    return lax.while_loop(goes_on, step, (x[0], 0.0, 1.0))  # loop


def while_in_scan(ws, x):
    """Each layer repeats until its rows are short."""

    def layer(x, w):
        def is_long(h):
            return jnp.abs(h).max() > 0.2

        return lax.while_loop(is_long, lambda h: 0.5 * jnp.tanh(h @ w), x), None  # loop

    return lax.scan(layer, x, ws)[0]


def scan_in_while(ws, x):
    """All layers repeat until the result is short."""

    def layers(x):
        return lax.scan(lambda x, w: (0.9 * jnp.tanh(x @ w), None), x, ws)[0]

    return lax.while_loop(lambda x: jnp.abs(x).max() > 0.01, layers, x)  # loop


def nested(w, x):
    """Newton's method whose linear systems are solved by another loop."""

    def newton(c):
        x, _ = c
        residual = x + 0.1 * jnp.tanh(x @ w) - 1.0
        correction = lax.while_loop(  # loop
            lambda d: jnp.abs(residual - d[0]).max() > 1e-3,
            lambda d: (d[0] + 0.5 * (residual - d[0]), d[1] + 1),
            (jnp.zeros_like(x), 0),
        )[0]
        return x - correction, jnp.abs(correction).max()

    return lax.while_loop(lambda c: c[1] > 1e-2, newton, (x, jnp.float32(1)))  # loop


def of_each_example(w, x):
    """`vmap` of a loop: it runs until all examples are done."""

    def one(x):
        return lax.while_loop(  # loop
            lambda c: (c[0] < 50) & (jnp.abs(c[1]).max() > 0.05),
            lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)),
            (0, x),
        )

    return jax.vmap(one)(x)


def branch_with_loop(w, x, flag):
    """A loop in a branch, and one in a remat region."""

    def refine(x):
        return lax.while_loop(  # loop
            lambda x: jnp.abs(x).max() > 0.1, lambda x: x @ w, x
        )

    return lax.cond(flag, refine, jnp.tanh, x) + jax.checkpoint(refine)(2 * x)


# -- numerical programs --------------------------------------------------------------------


def conjugate_gradients(a, b):
    """`jax.scipy`'s solver."""
    return jax.scipy.sparse.linalg.cg(a, b, tol=1e-4, maxiter=200)[0]  # loop


def own_conjugate_gradients(a, b):
    """CG for many right sides [N, D], as a user writes it."""

    def goes_on(c):
        return (c[3] < 64) & ((c[1] ** 2).sum(-1).max() > 1e-6)

    def step(c):
        x, r, p, i = c
        ap = p @ a
        alpha = (r * r).sum(-1) / (p * ap).sum(-1)
        rest = r - alpha[:, None] * ap
        beta = (rest * rest).sum(-1) / (r * r).sum(-1)
        return x + alpha[:, None] * p, rest, rest + beta[:, None] * p, i + 1

    return lax.while_loop(goes_on, step, (jnp.zeros_like(b), b, b, 0))[0]  # loop


def k_means(x, centers):
    """Lloyd's algorithm, until no center moves."""

    def step(c):
        _, centers, i = c
        nearest = ((x[:, None] - centers) ** 2).sum(-1).argmin(-1)
        member = jax.nn.one_hot(nearest, len(centers))
        counts = jnp.maximum(member.sum(0), 1.0)
        return centers, member.T @ x / counts[:, None], i + 1

    def moves(c):
        return (c[2] < 30) & (jnp.abs(c[0] - c[1]).max() > 1e-3)

    return lax.while_loop(moves, step, (centers + 1, centers, 0))[1]  # loop


def sinkhorn(cost):
    """Optimal transport: rows and columns are scaled until both sum to 1."""
    kernel = jnp.exp(-cost)

    def step(c):
        _, v = c
        u = 1 / (kernel @ v)
        return v, 1 / (u @ kernel)

    def goes_on(c):
        return jnp.abs(c[0] / c[1] - 1).max() > 1e-4

    v = lax.while_loop(  # loop
        goes_on, step, (jnp.zeros(cost.shape[1]), jnp.ones(cost.shape[1]))
    )
    return v[1]


def adaptive_ode(w, x):
    """Heun's method whose step size follows its error, as ODE packages have it."""

    def field(y):
        return jnp.tanh(y @ w) - y

    def step(c):
        t, h, y, steps = c
        k1 = field(y)
        k2 = field(y + h * k1)
        error = jnp.sqrt(jnp.mean((h * (k2 - k1) / 2) ** 2)) / 1e-2
        accepted = error < 1
        y = jnp.where(accepted, y + h * (k1 + k2) / 2, y)
        t = jnp.where(accepted, t + h, t)
        h = jnp.minimum(h * jnp.clip(0.9 * error**-0.5, 0.2, 5.0), 1.0 - t + 1e-6)
        return t, h, y, steps + 1

    def goes_on(c):
        return (c[0] < 1.0) & (c[3] < 1000)

    start = (jnp.float32(0), jnp.float32(0.1), x, 0)
    return lax.while_loop(goes_on, step, start)[2]  # loop


def line_search(w, x, y):
    """Gradient descent with optax's backtracking line search."""
    solver = optax.chain(
        optax.sgd(1.0),
        optax.scale_by_backtracking_linesearch(max_backtracking_steps=15),
    )

    def loss(w):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(w)
    updates, _ = solver.update(  # loop
        gradient, solver.init(w), w, value=value, grad=gradient, value_fn=loss
    )
    return optax.apply_updates(w, updates), value


def equilibrium_training(w, x, y):
    """A train step through a fixed point, by implicit differentiation."""

    @jax.custom_vjp
    def equilibrium(w, x):
        def goes_on(c):
            return jnp.abs(c[0] - c[1]).max() > 1e-5

        def step(c):
            return jnp.tanh(c[0] @ w + x), c[0]

        return lax.while_loop(goes_on, step, (x, x + 1))[0]  # loop

    def forward(w, x):
        z = equilibrium(w, x)
        return z, (w, x, z)

    def backward(saved, g):
        w, x, z = saved
        _, vjp = jax.vjp(lambda w, x, z: jnp.tanh(z @ w + x), w, x, z)

        def goes_on(c):
            return jnp.abs(c[0] - c[1]).max() > 1e-5

        u = lax.while_loop(goes_on, lambda c: (g + vjp(c[0])[2], c[0]), (g, g + 1))[0]
        return vjp(u)[:2]

    equilibrium.defvjp(forward, backward)
    # JAX gives the backward pass of a `custom_vjp` the line of its call.
    value, gradient = jax.value_and_grad(
        lambda w: ((equilibrium(w, x) - y) ** 2).mean()  # loop
    )(w)
    return w - 0.1 * gradient, value


def rejection(key, x):
    """Samples until all are accepted, by keys of JAX."""

    def step(c):
        key, x, done = c
        key, one, two = jax.random.split(key, 3)
        proposal = x + jax.random.normal(one, x.shape)
        accept = jax.random.uniform(two, x.shape) < jnp.exp(-(proposal**2))
        return key, jnp.where(accept & ~done, proposal, x), done | accept

    start = key, x, jnp.zeros(x.shape, bool)
    return lax.while_loop(lambda c: ~c[2].all(), step, start)[1]  # loop


# -- decoding ------------------------------------------------------------------------------


def _attend(p, caches, token, position):
    """Logits of the next token, and the caches [B, LENGTH, D] with this one's."""
    h = p["embed"][token]
    keys, values = (
        lax.dynamic_update_index_in_dim(cache, h @ p[name], position, 1)
        for cache, name in zip(caches, ("k", "v"), strict=True)
    )
    scores = jnp.einsum("bd,bld->bl", h @ p["q"], keys)
    scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9)
    h = h + jnp.einsum("bl,bld->bd", jax.nn.softmax(scores), values) @ p["o"]
    return h @ p["embed"].T, (keys, values)


def greedy_decode(p, prompt):
    """Tokens until each row has ended, with a cache of keys and values."""
    batch = len(prompt)
    caches = (jnp.zeros((batch, LENGTH, D)),) * 2
    tokens = jnp.zeros((batch, LENGTH), jnp.int32).at[:, 0].set(prompt)

    def step(c):
        i, tokens, caches, done = c
        logits, caches = _attend(p, caches, tokens[:, i], i)
        token = jnp.where(done, 0, logits.argmax(-1).astype(jnp.int32))
        tokens = lax.dynamic_update_index_in_dim(tokens, token, i + 1, 1)
        return i + 1, tokens, caches, done | (token == 1)

    def goes_on(c):
        return (c[0] < LENGTH - 1) & ~c[3].all()

    return lax.while_loop(goes_on, step, (0, tokens, caches, prompt < 0))[1]  # loop


def speculative_decode(p, draft, prompt):
    """A draft proposes 3 tokens, of which the model keeps those that it would choose."""
    tokens = jnp.zeros(LENGTH + 4, jnp.int32).at[0].set(prompt)

    def next_tokens(p, tokens):
        h = p["embed"][tokens]
        mixed = jnp.cumsum(h @ p["v"], 0) / (1 + jnp.arange(len(tokens)))[:, None]
        return ((h + mixed @ p["o"]) @ p["embed"].T).argmax(-1).astype(jnp.int32)

    def step(c):
        n, tokens = c

        def propose(j, tokens):
            return tokens.at[n + j + 1].set(next_tokens(draft, tokens)[n + j])

        proposed = lax.fori_loop(0, 3, propose, tokens)
        best = next_tokens(p, proposed)

        def accepts(k):
            return (k < 3) & (proposed[n + k + 1] == best[n + k])

        k = lax.while_loop(accepts, lambda k: k + 1, 0)  # loop
        return n + k + 1, proposed.at[n + k + 1].set(best[n + k])

    return lax.while_loop(lambda c: c[0] < LENGTH, step, (0, tokens))[1]  # loop


def beam_search(p, prompt):
    """The best 4 continuations, until the best of all has ended."""
    beams = jnp.zeros((4, LENGTH), jnp.int32).at[:, 0].set(prompt)

    def step(c):
        i, beams, scores = c
        h = p["embed"][beams[:, i]]
        logits = jax.nn.log_softmax((h + jnp.tanh(h @ p["q"]) @ p["o"]) @ p["embed"].T)
        scores, chosen = lax.top_k((scores[:, None] + logits).reshape(-1), 4)
        beams = beams[chosen // VOCAB]
        token = (chosen % VOCAB).astype(jnp.int32)
        return i + 1, lax.dynamic_update_index_in_dim(beams, token, i + 1, 1), scores

    def goes_on(c):
        i, beams, _ = c
        return (i < LENGTH - 1) & (beams[0, i] != 1)

    scores = jnp.array([0.0, -1e9, -1e9, -1e9])
    return lax.while_loop(goes_on, step, (0, beams, scores))[1]  # loop


# -- the table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class UnknownLoopProgram:
    """A program, small arguments, and tactics over the axis "d"."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    cuts: dict[str, int]

    @property
    def lines(self) -> set[int]:
        """The line numbers at which a plan must name loops."""
        text, first = inspect.getsourcelines(self.fn)
        return {first + i for i, line in enumerate(text) if line.endswith("# loop\n")}

    def partitioned(self, num_devices: int, **options: Any) -> Any:
        """The program, partitioned over some devices."""
        tactics = [mw.shard(self.cuts, "d")]
        return mw.partition(self.fn, {"d": num_devices}, tactics, **options)


_LM = {n: _normal(D, D) for n in "qkvo"} | {"embed": _normal(VOCAB, D)}
_DRAFT = _LM | {"o": _normal(D, D) * 0.9}
_WS = np.stack([_W, _W.T, 0.5 * _W])
_PROMPT = np.arange(2, 10, dtype=np.int32)
_KEY = jax.random.key(0)

PROGRAMS = {
    program.fn.__name__: program
    for program in (
        UnknownLoopProgram(contraction, (_W, _X), {"w": 1}),
        UnknownLoopProgram(traced_bound, (_W, _X, np.int32(5)), {"x": 0}),
        UnknownLoopProgram(power_iteration, (_SPD, _X), {"w": 1}),
        UnknownLoopProgram(while_in_scan, (_WS, _X), {"ws": 2}),
        UnknownLoopProgram(scan_in_while, (_WS, _X), {"x": 0}),
        UnknownLoopProgram(nested, (_W, _X), {"w": 1}),
        UnknownLoopProgram(of_each_example, (_W, _X), {"x": 0}),
        UnknownLoopProgram(branch_with_loop, (_W, _X, np.bool_(True)), {"w": 0}),
        UnknownLoopProgram(conjugate_gradients, (_SPD, _X[0]), {"a": 0}),
        UnknownLoopProgram(own_conjugate_gradients, (_SPD, _X), {"a": 1}),
        UnknownLoopProgram(k_means, (_normal(64, D), _X[:8]), {"x": 0}),
        UnknownLoopProgram(sinkhorn, (np.abs(_normal(N, D)),), {"cost": 0}),
        UnknownLoopProgram(adaptive_ode, (_W, _X), {"x": 0}),
        UnknownLoopProgram(line_search, (_W, _X, _normal(N, D)), {"x": 0}),
        UnknownLoopProgram(equilibrium_training, (_W, _X, -_X), {"x": 0, "y": 0}),
        UnknownLoopProgram(rejection, (_KEY, _normal(N, D)), {"x": 0}),
        UnknownLoopProgram(greedy_decode, (_LM, _PROMPT), {"prompt": 0}),
        UnknownLoopProgram(speculative_decode, (_LM, _DRAFT, np.int32(3)), {"p.v": 1}),
        UnknownLoopProgram(beam_search, (_LM, np.int32(3)), {"p.q": 1, "p.o": 0}),
    )
}
