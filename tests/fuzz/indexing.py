"""Families: reading and writing by index, and random numbers."""

from __future__ import annotations

from tests.fuzz.pool import NoFitError, Scope
from tests.fuzz.shapes import keep


def along(d: int, index: str) -> str:
    """Subscript of one dim."""
    return ", ".join([":"] * d + [index])


def dynamic(s: Scope) -> None:
    """Slices that start where a traced integer says, read and written."""
    x = s.arrays(1)
    d = s.dim(x)
    n = x.shape[d]
    start = f"{s.scalar_int()} % {n}"
    size = s.rng.randrange(1, n + 1)
    how = s.rng.choice(("read", "read", "item", "write", "write", "cache"))
    if how == "read":
        keep(s, f"lax.dynamic_slice_in_dim({x.name}, {start}, {size}, {d})", x)
    elif how == "item":
        keep(s, f"lax.dynamic_index_in_dim({x.name}, {start}, {d}, keepdims=False)", x)
    elif how == "write":
        u = f"0.5 * {x.name}" if x.is_float else x.name
        u = f"lax.slice_in_dim({u}, 0, {size}, axis={d})"
        code = f"lax.dynamic_update_slice_in_dim({x.name}, {u}.astype({x.name}.dtype), {start}, {d})"
        s.emit(code, x.bound)
    else:
        shape = (*x.shape[:d], *x.shape[d + 1 :])
        fits = [v for v in s.pool if v.dtype == x.dtype and v.shape == shape]
        if not fits:
            raise NoFitError
        u = s.rng.choice(fits)
        code = f"lax.dynamic_update_index_in_dim({x.name}, {u.name}, {start}, {d})"
        s.emit(code, max(x.bound, u.bound))


def gather(s: Scope) -> None:
    """Rows by index: lookups, takes, fancy indexing, one-hot."""
    x = s.floats(1, 3)
    d = s.dim(x)
    n = x.shape[d]
    i = s.ints(1, 2)
    how = s.rng.choice(
        ("take", "take", "plain", "along", "wild", "one_hot", "batch", "pair")
    )
    if how == "take":
        mode = s.rng.choice(("clip", "wrap", "fill"))
        extra = ", fill_value=0" if mode == "fill" else ""
        code = f"jnp.take({x.name}, {i.name}, axis={d}, mode={mode!r}{extra})"
    elif how == "plain":
        code = f"{x.name}[{along(d, f'{i.name} % {n}')}]"
    elif how == "along":
        j = f"jnp.argsort({s.smooth(x.name)}, axis={d})" if x.is_exact else None
        if j is None:
            fits = [v for v in s.pool if v.dtype == "int32" and v.shape == x.shape]
            if not fits:
                raise NoFitError
            j = f"{s.rng.choice(fits).name} % {n}"
        code = f"jnp.take_along_axis({x.name}, {j}, axis={d})"
    elif how == "one_hot":
        code = f"jax.nn.one_hot({i.name}, {n}) @ jnp.moveaxis({x.name}, {d}, 0).reshape({n}, -1).astype(jnp.float32)"
    elif how == "batch" and len(x.shape) >= 2:
        m = x.shape[1]
        j = s.input((x.shape[0], 3), "int32") if not s.depth else i
        code = f"jax.vmap(lambda a, b: a[b % {m}])({x.name}, {j.name})"
    elif how == "pair" and len(x.shape) >= 2:
        code = f"{x.name}[{i.name} % {x.shape[0]}, ..., ({i.name} + 1) % {x.shape[-1]}]"
    else:
        code = f"{x.name}.at[{along(d, i.name)}].get(mode='fill', fill_value=0.5)"
    s.emit(code, max(x.bound, 1.0))


def scatter(s: Scope) -> None:
    """Rows written, added, maximised at an index; segment sums, counts."""
    x = s.floats(1, 3)
    d = s.dim(x)
    n = x.shape[d]
    i = s.ints(1, 1)
    how = s.rng.choice(
        ("add", "add", "set", "max", "mul", "segment", "row", "count", "drop")
    )
    index = along(d, f"{i.name} % {n}")
    rows = f"jnp.take({x.name}, jnp.arange({i.shape[0]}) % {n}, axis={d})"
    if how == "add":
        code = f"0.3 * {x.name}.at[{index}].add({rows})"
    elif how == "set":
        order = f"jnp.argsort({i.name})"
        code = f"{x.name}.at[{along(d, order)}].set(0.5 * {rows})"
    elif how == "max":
        code = f"{s.smooth(x.name)}.at[{index}].{s.rng.choice(('max', 'min'))}({s.smooth(rows)})"
    elif how == "mul":
        code = f"{s.smooth(x.name)}.at[{index}].multiply(0.7)"
    elif how == "row":
        code = f"{x.name}.at[{along(d, f'{s.scalar_int()} % {n}')}].add(0.25)"
    elif how == "count":
        code = (
            f"jnp.bincount({i.name} % 8, length=8).astype(jnp.float32) / {i.shape[0]}"
        )
    elif how == "drop":
        code = f"{x.name}.at[{along(d, i.name)}].add(0.3, mode='drop')"
    else:
        k = s.rng.choice((4, 8))
        moved = f"jnp.moveaxis({x.name}, {d}, 0)"
        ids = f"(jnp.arange({n}) * 3 + {s.scalar_int()}) % {k}"
        code = f"0.5 * jax.ops.segment_sum({moved}, {ids}, num_segments={k})"
    s.emit(code, 2 * x.bound)


def key_of(s: Scope) -> str:
    """A PRNG key: an input, a part of one, or made on the spot."""
    keys = [v for v in s.pool if v.dtype.startswith("key") and not v.shape]
    how = s.rng.choice(("input", "input", "split", "fold", "new", "raw"))
    if how == "new":
        return f"jax.random.key({s.rng.randrange(9)})"
    if how == "raw":
        return f"jax.random.PRNGKey({s.rng.randrange(9)})"
    key = s.rng.choice(keys) if keys else s.input((), "key<fry>")
    if how == "split":
        return f"jax.random.split({key.name}, 3)[1]"
    if how == "fold":
        return f"jax.random.fold_in({key.name}, {s.scalar_int()})"
    return key.name


def sample(s: Scope) -> None:
    """Random numbers in the shape of something, used as noise or mask."""
    x = s.floats()
    shape = x.shape
    code, is_exact = s.rng.choice(
        (
            ("jax.random.uniform({k}, {s})", True),
            ("jax.random.normal({k}, {s})", False),
            ("jax.random.bernoulli({k}, 0.7, {s})", True),
            ("jax.random.gumbel({k}, {s})", False),
            ("jax.random.randint({k}, {s}, 0, 9)", True),
            ("jax.random.exponential({k}, {s})", False),
            ("jax.random.truncated_normal({k}, -1, 1, {s})", False),
            ("jax.random.rademacher({k}, {s}, dtype=jnp.int32)", True),
            ("jax.random.categorical({k}, jnp.zeros({s} + (4,)))", True),
            ("jax.random.gamma({k}, 2.0, {s}) / 4", False),
            ("jax.random.beta({k}, 2.0, 3.0, {s})", False),
            ("jax.random.choice({k}, jnp.arange(9), {s})", True),
            ("jax.random.laplace({k}, {s})", False),
            ("jax.random.cauchy({k}, {s}) / 50", False),
            ("jax.random.permutation({k}, jnp.arange({n}))", True),
            ("jax.random.bits({k}, {s}).astype(jnp.int32) % 7", True),
        )  # fmt: skip
    )
    n = shape[0] if shape else 8
    s.emit(code.format(k=key_of(s), s=shape, n=n), 1.0 if is_exact else 4.0, is_exact)


def dropout(s: Scope) -> None:
    """What training does with random numbers."""
    x = s.floats(1)
    mask = f"jax.random.bernoulli({key_of(s)}, 0.8, {x.shape})"
    s.emit(f"jnp.where({mask}, {x.name} / 0.8, 0)", 1.3 * x.bound)


FAMILIES = (
    (dynamic, 4), (gather, 5), (scatter, 4), (sample, 3), (dropout, 1),
)  # fmt: skip
