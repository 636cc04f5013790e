"""Families: fewer numbers from many, and running reductions."""

from __future__ import annotations

import math

from tests.fuzz.pool import NoFitError, Scope


def over(s: Scope, rank: int) -> tuple[int, ...]:
    """Some dims of a rank, at least one."""
    dims = [d for d in range(rank) if s.draft.chance(0.5)]
    return tuple(dims or [s.rng.randrange(rank)])


def reduce(s: Scope) -> None:
    """Sums, means, extrema, norms over some dims."""
    x = s.floats(1)
    dims = over(s, len(x.shape))
    n = math.prod(x.shape[d] for d in dims)
    root = f"{math.sqrt(n):.3f}"
    code, bound = s.rng.choice(
        (
            ("jnp.sum({x}, {k}) / " + root, 2 * x.bound),
            ("jnp.mean({x}, {k})", x.bound),
            ("jnp.max({x}, {k})", x.bound),
            ("jnp.min({x}, {k})", x.bound),
            ("jnp.prod(1 + 0.1 * jnp.tanh({x}), {k})", 3.0),
            ("jnp.sqrt(0.1 + jnp.var({x}, {k}))", x.bound),
            ("jax.nn.logsumexp({x}, {k})", x.bound + math.log(n)),
            ("jnp.sum(jnp.square({x}), {k}) / " + f"{n}", x.bound**2),
            ("lax.reduce({x}, np.array(-9, {x}.dtype), lax.max, {k1})", x.bound),
            ("jnp.ptp({x}, {k})", 2 * x.bound),
            ("jnp.max(jnp.abs({x}), {k}, initial=0.5)", x.bound),
            ("jnp.average({x}, {k1}, weights=jnp.cos({x}) + 2)", x.bound),
            ("jnp.median({x}, {k})", x.bound)
            if x.is_exact and not s.draft.is_smooth
            else ("jnp.mean(jnp.abs({x}), {k})", x.bound),
        )  # fmt: skip
    )
    keepdims = ", keepdims=True" if s.draft.chance(0.4) else ""
    code = code.format(x=x.name, k=f"axis={dims}{keepdims}", k1=dims)
    s.emit(code, bound)


def reduce_exact(s: Scope) -> None:
    """Reductions of integers and masks, positions of extrema."""
    x = s.pick(lambda v: v.is_exact and v.shape and not v.dtype.startswith("key"))
    d = s.dim(x)
    if x.dtype == "bool":
        codes = ["jnp.any({x}, axis={d})", "jnp.all({x}, axis={d})",
                 "jnp.sum({x}, axis={d})", "jnp.count_nonzero({x}, axis={d})"]  # fmt: skip
    else:
        codes = ["jnp.argmax({x}, axis={d})", "jnp.argmin({x}, axis={d})"]
        if x.dtype == "int32":
            codes += ["jnp.sum({x}, axis={d})", "jnp.max({x}, axis={d})", "jnp.prod({x}, axis={d})",
                      "lax.reduce_xor({x}, ({d},))", "lax.reduce_or({x}, ({d},))",
                      "lax.reduce_and({x}, ({d},))"]  # fmt: skip
    s.emit(s.rng.choice(codes).format(x=x.name, d=d), 12, True)


def cumulate(s: Scope) -> None:
    """Running sums, products and extrema, either way."""
    x = s.floats(1)
    d = s.dim(x)
    n = math.sqrt(x.shape[d])
    tail = f"{d}, reverse={s.draft.chance(0.3)})"
    code, bound = s.rng.choice(
        (
            ("lax.cumsum({x}, " + tail + f" / {n:.3f}", 2 * x.bound),
            ("lax.cumprod(1 + 0.1 * jnp.tanh({x}), " + tail, 3.0),
            ("lax.cummax({x}, " + tail, x.bound),
            ("lax.cummin({x}, " + tail, x.bound),
            ("lax.cumlogsumexp({x}, " + tail, x.bound + 2),
            (f"lax.associative_scan(jnp.maximum, {{x}}, axis={d})", x.bound),
        )  # fmt: skip
    )
    s.emit(code.format(x=x.name), bound)


def normalise(s: Scope) -> None:
    """Softmax, layer norm and the like."""
    x = s.floats(1)
    d = s.dim(x)
    code, bound = s.rng.choice(
        (
            ("jax.nn.softmax({x}, axis={d})", 1.0),
            ("jax.nn.log_softmax({x}, axis={d})", 4.0),
            (
                "({x} - {x}.mean({d}, keepdims=True)) * lax.rsqrt({x}.var({d}, keepdims=True) + 0.1)",
                3.0,
            ),
            ("{x} * lax.rsqrt(jnp.mean({x} * {x}, {d}, keepdims=True) + 0.1)", 3.0),
            ("jax.nn.standardize({x}, axis={d}, epsilon=0.1)", 3.0),
            ("{x} / (0.5 + jnp.linalg.norm({x} + 2.5, axis={d}, keepdims=True))", 1.0),
        )  # fmt: skip
    )
    s.emit(code.format(x=x.name, d=d), bound)


def sorting(s: Scope) -> None:
    """Orders of numbers without rounding."""
    x = s.exact(1)
    d = s.dim(x)
    how = s.rng.choice(("sort", "argsort", "top_k", "top_k", "pairs"))
    name = x.name
    if how == "sort":
        s.emit(f"jnp.sort({name}, axis={d})", x.bound, True)
    elif how == "argsort":
        s.emit(f"jnp.argsort({name}, axis={d})", 12, True)
    elif how == "top_k":
        k = s.rng.randrange(1, min(4, x.shape[-1]) + 1)
        s.emit_block(f"{{0}}, {{1}} = lax.top_k({name}, {k})", 2, x.bound, True)
    elif s.draft.is_smooth:
        raise NoFitError
    else:
        code = f"{{0}}, {{1}} = lax.sort(({name}, jnp.flip({name}, {d})), dimension={d}, num_keys=1)"
        s.emit_block(code, 2, x.bound, True)


FAMILIES = ((reduce, 9), (reduce_exact, 3), (cumulate, 3), (normalise, 5), (sorting, 2))
