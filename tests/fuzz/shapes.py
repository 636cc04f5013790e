"""Families: the same numbers in another order, and more or fewer of them."""

from __future__ import annotations

import math

from tests.fuzz.pool import NoFitError, Scope, Var


def keep(s: Scope, code: str, x: Var) -> None:
    """Emit code that only moves the elements of x."""
    s.emit_block("{0} = " + code, 1, x.bound, x.is_exact)


def transpose(s: Scope) -> None:
    """Dims in another order."""
    x = s.arrays(2)
    order = list(range(len(x.shape)))
    s.rng.shuffle(order)
    keep(s, f"jnp.transpose({x.name}, {tuple(order)})", x)


def reshape(s: Scope) -> None:
    """One dim split, two merged, all flattened, or a regrouping of everything."""
    x = s.arrays(1)
    d = s.dim(x)
    shape = list(x.shape)
    how = s.rng.choice(("split", "split", "merge", "merge", "flat", "regroup"))
    if how == "split":
        divisors = [k for k in range(1, shape[d] + 1) if shape[d] % k == 0]
        k = s.rng.choice(divisors)
        shape[d : d + 1] = [k, shape[d] // k]
    elif how == "merge" and d + 1 < len(shape):
        shape[d : d + 2] = [shape[d] * shape[d + 1]]
    elif how == "flat":
        shape = [x.size]
    elif len(shape) > 1:
        first = math.gcd(x.size, s.rng.choice((2, 4, 8, 6, 3)))
        shape = [first, x.size // first]
    if len(shape) > 5:
        raise NoFitError
    keep(s, f"jnp.reshape({x.name}, {tuple(shape)})", x)


def dims(s: Scope) -> None:
    """Size-1 dims come and go; whole dims are stretched."""
    x = s.arrays()
    ones = [d for d, n in enumerate(x.shape) if n == 1]
    how = s.rng.choice(("expand", "squeeze", "stretch", "broadcast", "tile"))
    rank = len(x.shape)
    if how == "squeeze" and ones:
        keep(s, f"jnp.squeeze({x.name}, {s.rng.choice(ones)})", x)
    elif how == "stretch" and ones:
        shape = list(x.shape)
        shape[s.rng.choice(ones)] = s.draft.extent()
        keep(s, f"jnp.broadcast_to({x.name}, {tuple(shape)})", x)
    elif how == "broadcast" and rank < 4:
        d = s.rng.randrange(rank + 1)
        shape = (*x.shape[:d], s.draft.extent(), *x.shape[d:])
        code = f"jnp.broadcast_to(jnp.expand_dims({x.name}, {d}), {shape})"
        keep(s, code, x)
    elif how == "tile" and rank:
        reps = [1] * rank
        reps[s.dim(x)] = 2
        keep(s, f"jnp.tile({x.name}, {tuple(reps)})", x)
    elif rank < 4:
        keep(s, f"jnp.expand_dims({x.name}, {s.rng.randrange(rank + 1)})", x)
    else:
        raise NoFitError


def move(s: Scope) -> None:
    """Flips, rolls, repeats, triangles."""
    x = s.arrays(1)
    d = s.dim(x)
    choices = ["jnp.flip({x}, {d})", "jnp.roll({x}, {k}, {d})", "jnp.repeat({x}, 2, {d})",
               "jnp.moveaxis({x}, {d}, 0)"]  # fmt: skip
    if len(x.shape) >= 2:
        choices += ["jnp.tril({x})", "jnp.triu({x}, 1)", "jnp.diagonal({x})",
                    "jnp.roll({x}, (1, 2), (0, 1))", "jnp.rot90({x})"]  # fmt: skip
    code = s.rng.choice(choices).format(x=x.name, d=d, k=s.rng.choice((1, 2, -1, 3)))
    keep(s, code, x)


def window(s: Scope) -> None:
    """Static slices, with strides."""
    x = s.arrays(1)
    d = s.dim(x)
    n = x.shape[d]
    if n < 2:
        raise NoFitError
    start = s.rng.randrange(n - 1)
    stop = s.rng.randrange(start + 1, n + 1)
    choices = (f"{start}:{stop}", f":{n // 2}", f"{n // 2}:", "::2", "::-1", "1:", ":-1",
               f"{start}:{stop}:2", f"{start}")  # fmt: skip
    index = ", ".join([":"] * d + [s.rng.choice(choices)])
    keep(s, f"{x.name}[{index}]", x)


def pad(s: Scope) -> None:
    """Low, high, negative and interior padding."""
    x = s.floats(1)
    if s.draft.chance(0.3):
        mode = s.rng.choice(("edge", "reflect", "wrap"))
        if min(x.shape) < 3:
            raise NoFitError
        keep(s, f"jnp.pad({x.name}, 1, mode={mode!r})", x)
        return
    options = (
        (0, 0, 0),
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 0),
        (0, 4, 0),
        (-1, 1, 0),
        (0, 0, 1),
    )
    config = tuple(s.rng.choice(options) for _ in x.shape)
    value = s.rng.choice(("0", "-0.5", "1"))
    value = f"jnp.asarray({value}, {x.name}.dtype)"
    keep(s, f"lax.pad({x.name}, {value}, {config})", x)


def join(s: Scope) -> None:
    """Concatenations and stacks of arrays of one dtype."""
    x = s.arrays()
    alike = [v for v in s.pool if v.shape == x.shape and v.dtype == x.dtype]
    parts = [s.rng.choice(alike) for _ in range(s.rng.choice((2, 2, 3)))]
    rank = len(x.shape)
    names = ", ".join(v.name for v in parts)
    bound = max(v.bound for v in parts)
    is_exact = all(v.is_exact for v in parts)
    if rank and s.draft.chance(0.6):
        code = f"jnp.concatenate([{names}], axis={s.rng.randrange(rank)})"
    elif rank < 4:
        code = f"jnp.stack([{names}], axis={s.rng.randrange(rank + 1)})"
    else:
        raise NoFitError
    s.emit_block("{0} = " + code, 1, bound, is_exact)


def split(s: Scope) -> None:
    """One dim in equal parts."""
    x = s.arrays(1)
    d = s.dim(x)
    parts = [k for k in (2, 3, 4) if x.shape[d] % k == 0]
    if not parts:
        raise NoFitError
    k = s.rng.choice(parts)
    names = ", ".join("{%d}" % i for i in range(k))
    code = f"{names} = jnp.split({x.name}, {k}, axis={d})"
    s.emit_block(code, k, x.bound, x.is_exact)


def make(s: Scope) -> None:
    """Arrays from nothing: iotas, masks, constants."""
    n, m = s.draft.extent(), s.draft.extent()
    code = s.rng.choice(
        (
            f"jnp.arange({n})",
            f"jnp.arange({n})[:, None] >= jnp.arange({m})[None, :]",
            f"jnp.eye({n}, {m})",
            f"jnp.linspace(0, 1, {n})",
            f"jnp.ones(({n}, {m}))",
            f"jnp.full(({m}, {n}), 0.25)",
            f"lax.broadcasted_iota(jnp.int32, ({n}, {m}), 1)",
            f"jnp.asarray((np.arange({n * m}, dtype=np.float32) % 7 / 7).reshape({n}, {m}))",
            f"jnp.asarray(np.arange({n}) * 5 % 7, dtype=np.int32)",
            f"jnp.tri({n}, {m})",
        )  # fmt: skip
    )
    s.emit_block("{0} = " + code, 1, 1.0 if "arange" not in code else 12.0, True)


def tagged(s: Scope) -> None:
    """A value that schedules can name."""
    x = s.floats(1)
    name = s.draft.fresh("t")
    keep(s, f"mw.tag({x.name}, {name!r})", x)
    if s.depth == 0 or s.draft.chance(0.5):  # in a body, what nothing reads is dropped
        s.draft.tags.append((name, len(x.shape)))


FAMILIES = (
    (transpose, 4), (reshape, 8), (dims, 5), (move, 4), (window, 6), (pad, 3), (join, 5),
    (split, 2), (make, 2), (tagged, 5),
)  # fmt: skip
