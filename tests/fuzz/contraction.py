"""Families: products that sum, and windows that slide."""

from __future__ import annotations

import math
from string import ascii_lowercase

from tests.fuzz.pool import MAX_ELEMENTS, NoFitError, Scope, Var


def matmul(s: Scope) -> None:
    """A dense layer: with a weight of its own, perhaps a bias and a nonlinearity."""
    x = s.floats(1)
    n, m = x.shape[-1], s.draft.extent()
    w = s.input((n, m), x.dtype)
    code = f"jnp.dot({x.name}, {w.name}) / {math.sqrt(n):.3f}"
    bound = 1.5 * x.bound
    if s.draft.chance(0.4):
        code = f"{code} + {s.input((m,), x.dtype).name}"
    if s.draft.chance(0.5):
        act = s.rng.choice(("jnp.tanh", "jax.nn.relu", "jax.nn.gelu"))
        code = f"{act}({code})"
    s.emit(code, bound)


def einsum(s: Scope) -> None:
    """Any contraction of two arrays, with batch dims, outer dims and summed dims."""
    a = s.floats(1, 3)
    alike = [v for v in s.pool if v.dtype == a.dtype and 1 <= len(v.shape) <= 3]
    b = s.rng.choice(alike)
    left = list(ascii_lowercase[: len(a.shape)])
    right: list[str] = []
    for d, n in enumerate(b.shape):
        same = [
            c for c, k in zip(left, a.shape, strict=True) if k == n and c not in right
        ]
        shared = same and s.draft.chance(0.7)
        right.append(s.rng.choice(same) if shared else ascii_lowercase[10 + d])
    extent = dict(zip(left + right, a.shape + b.shape, strict=True))
    out, terms = [], 1
    for c in dict.fromkeys(left + right):
        drops = 0.6 if c in left and c in right else 0.1
        if s.draft.chance(drops):
            terms *= extent[c]
        else:
            out.append(c)
    s.rng.shuffle(out)
    if math.prod(extent[c] for c in out) > MAX_ELEMENTS or len(out) > 4:
        raise NoFitError
    spec = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    code = f"jnp.einsum({spec!r}, {a.name}, {b.name}) / {math.sqrt(terms):.3f}"
    s.emit(code, 2 * a.bound * b.bound)


def attention(s: Scope) -> None:
    """Queries, keys and values from one array; perhaps causal, perhaps with heads."""
    x = s.pick(lambda v: v.is_float and len(v.shape) in (2, 3) and v.size <= 512)
    t, d = x.shape[-2:]
    wq, wk, wv = (s.input((d, d), x.dtype).name for _ in range(3))
    lead = "b" if len(x.shape) == 3 else ""
    q, k, v = (f"({x.name} @ {w} / {math.sqrt(d):.3f})" for w in (wq, wk, wv))
    if d % 2 == 0 and s.draft.chance(0.5):
        shape = (*x.shape[:-1], 2, d // 2)
        q, k, v = (f"{y}.reshape({shape})" for y in (q, k, v))
        scores = f"jnp.einsum('{lead}qhd,{lead}khd->{lead}hqk', {q}, {k})"
        mix, back = f"{lead}hqk,{lead}khd->{lead}qhd", f".reshape({x.shape})"
    else:
        scores = f"jnp.einsum('{lead}qd,{lead}kd->{lead}qk', {q}, {k})"
        mix, back = f"{lead}qk,{lead}kd->{lead}qd", ""
    if s.draft.chance(0.5):
        scores = f"jnp.where(jnp.tri({t}, dtype=bool), {scores}, -1e9)"
    s.emit(f"jnp.einsum({mix!r}, jax.nn.softmax({scores}), {v}){back}", x.bound)


def image(s: Scope) -> Var:
    """A batch of signals or pictures; a new input if there is none."""
    fits = [v for v in s.pool if v.is_float and len(v.shape) in (3, 4)]
    if fits and s.draft.chance(0.6):
        return s.rng.choice(fits)
    space = (8,) * s.rng.choice((1, 2)) if s.draft.chance(0.6) else (16,)
    return s.input((s.rng.choice((2, 4)), *space, s.rng.choice((2, 4))))


def conv(s: Scope) -> None:
    """1-D and 2-D convolutions with strides, dilations, padding, groups."""
    x = image(s)
    spatial = len(x.shape) - 2
    c = x.shape[-1]
    groups = s.rng.choice([g for g in (1, 1, 1, 2, c) if c % g == 0])
    kernel = [s.rng.choice((1, 2, 3)) for _ in range(spatial)]
    out = groups * s.rng.choice((1, 2, 4)) if groups > 1 else s.draft.extent()
    w = s.input((*kernel, c // groups, out), x.dtype)
    layout = ("NHC", "HIO", "NHC") if spatial == 1 else ("NHWC", "HWIO", "NHWC")
    padding = s.rng.choice(("'SAME'", "'VALID'", str([(1, 1)] * spatial)))
    stride = (s.rng.choice((1, 1, 2)),) * spatial
    extra = ""
    if s.draft.chance(0.2):
        extra += f", rhs_dilation={(2,) * spatial}"
    elif s.draft.chance(0.1) and padding[0] == "[":
        extra += f", lhs_dilation={(2,) * spatial}"
    if groups > 1:
        extra += f", feature_group_count={groups}"
    elif x.shape[0] % 2 == 0 and out % 2 == 0 and s.draft.chance(0.1):
        extra += ", batch_group_count=2"
    terms = math.sqrt(math.prod(kernel) * c // groups)
    code = (
        f"lax.conv_general_dilated({x.name}, {w.name}, {stride}, {padding}, "
        f"dimension_numbers={layout}{extra}) / {terms:.3f}"
    )
    s.emit(code, 2 * x.bound)


def pool(s: Scope) -> None:
    """Reductions over windows."""
    x = image(s) if s.draft.chance(0.5) else s.floats(2, 4)
    size = tuple(s.rng.choice((1, 2, 3)) if n > 2 else 1 for n in x.shape)
    strides = tuple(s.rng.choice((1, k)) for k in size)
    padding = s.rng.choice(("SAME", "VALID"))
    init, op, terms = s.rng.choice(
        (("-jnp.inf", "lax.max", 1), ("jnp.inf", "lax.min", 1), ("0.0", "lax.add", 0))
    )
    terms = terms or math.prod(size)
    init = f"np.array({init.replace('jnp', 'np')}, {x.name}.dtype)"
    code = f"lax.reduce_window({x.name}, {init}, {op}, {size}, {strides}, {padding!r})"
    s.emit(f"{code} / {terms}", x.bound)


def square(s: Scope) -> Var:
    """A well-conditioned symmetric matrix, or a batch of them."""
    x = s.pick(
        lambda v: v.dtype == "float32" and 2 <= len(v.shape) <= 3 and v.size < 600
    )
    n = x.shape[-2]
    code = (
        f"jnp.tanh({x.name}) @ jnp.tanh({x.name}).mT / {x.shape[-1]} + 2 * jnp.eye({n})"
    )
    return s.emit(code, 3.0)


def linalg(s: Scope) -> None:
    """Factorisations and solves over the last two dims."""
    m = square(s)
    code, bound = s.rng.choice(
        (
            ("jnp.linalg.cholesky({m})", 1.8),
            ("jnp.linalg.inv({m})", 0.6),
            ("jnp.linalg.solve({m}, {m}[..., :1])", 1.0),
            ("jax.scipy.linalg.solve_triangular(jnp.tril({m}), {m}, lower=True)", 2.0),
            ("jnp.linalg.det({m} / 2.5)", 2.0),
            ("jnp.linalg.qr({m})[1]", 3.0),
            ("jnp.linalg.eigvalsh({m})", 3.0),
            ("jnp.linalg.svd({m}, compute_uv=False)", 3.0),
            ("jnp.trace({m}, axis1=-2, axis2=-1)", 9.0),
            ("jnp.linalg.matrix_power({m} / 3, 3)", 1.0),
        )  # fmt: skip
    )
    s.emit(code.format(m=m.name), bound)


def ragged(s: Scope) -> None:
    """Rows in groups, each group times a matrix of its own."""
    x = s.pick(lambda v: v.dtype == "float32" and len(v.shape) == 2)
    rows, n = x.shape
    groups = s.rng.choice((2, 4))
    w = s.input((groups, n, s.draft.extent()))
    i = s.ints(1, 1)
    owners = f"(jnp.arange({rows}) * ({i.name}[0] % 3 + 1)) % {groups}"
    sizes = f"jnp.bincount({owners}, length={groups})"
    s.emit(
        f"lax.ragged_dot({x.name}, {w.name}, {sizes}) / {math.sqrt(n):.3f}",
        1.5 * x.bound,
    )


def outer(s: Scope) -> None:
    """Products that jax.numpy builds from others."""
    a = s.floats(1, 1)
    b = s.pick(lambda v: v.dtype == a.dtype and len(v.shape) == 1)
    code = s.rng.choice(
        ("jnp.outer({a}, {b})", "jnp.convolve({a}, {b}) / 4", "jnp.kron({a}, {b})",
         "jnp.polyval(jnp.tanh({a})[:3], jnp.tanh({b}))")
    )  # fmt: skip
    s.emit(code.format(a=a.name, b=b.name), 2 * a.bound * b.bound)


def fft(s: Scope) -> None:
    """To frequencies and back to something real."""
    x = s.pick(lambda v: v.dtype == "float32" and len(v.shape) >= 1)
    d = s.dim(x)
    n = x.shape[d]
    code = s.rng.choice(
        (f"jnp.real(jnp.fft.fft({x.name}, axis={d}))", f"jnp.abs(jnp.fft.rfft({x.name}, axis={d})) ** 2",
         f"jnp.real(jnp.fft.ifft(jnp.fft.fft({x.name}, axis={d}) * 0.5j, axis={d}))")
    )  # fmt: skip
    s.emit(f"{code} / {max(n, 1)}", x.bound)


FAMILIES = (
    (matmul, 8), (einsum, 8), (attention, 2), (conv, 5), (pool, 3), (linalg, 1), (fft, 1),
    (ragged, 1), (outer, 1),
)  # fmt: skip
