"""Every elementwise primitive, with scalars, stretched dims, and its gradients."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import fp8_ops
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.xla_metadata import set_xla_metadata

from meshwright.program.capture import tag
from tests.program.ops.catalogue import OPS_SINCE, Example

_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.1, 0.9, 8).astype(np.float32)
SIGNED = _RNG.standard_normal((8, 4)).astype(np.float32)
ROW = _RNG.standard_normal((1, 4)).astype(np.float32)
COLUMN = _RNG.uniform(0.5, 2, (8, 1)).astype(np.float32)
ODD = _RNG.uniform(0.5, 2, (8, 3)).astype(np.float32)
COMPLEX = (SIGNED + 1j * SIGNED[::-1]).astype(np.complex64)
INT = _RNG.integers(-100, 100, (8, 4)).astype(np.int32)
SHIFT = _RNG.integers(0, 31, (8, 4)).astype(np.int32)
BOOL = SIGNED > 0
HALF = SIGNED.astype(jnp.bfloat16)


def _each(*fns: Callable) -> Callable:
    """All functions of the same arguments."""
    return lambda *args: [fn(*args) for fn in fns]


def _grad(fn: Callable) -> Callable:
    """The gradient by each argument of a weighted sum of the results."""

    def loss(*args):
        leaves = jax.tree.leaves(fn(*args))
        return sum(
            jnp.sum(jnp.sin(y.astype(jnp.float32) + i)) for i, y in enumerate(leaves)
        )

    return lambda *args: jax.grad(loss, tuple(range(len(args))))(*args)


_ROOTS = _each(
    lax.sqrt, lax.rsqrt, lax.cbrt, lax.square, lambda x: lax.integer_pow(x, 3)
)
_EXPONENTIALS = _each(lax.exp, lax.exp2, lax.expm1, lax.log, lax.log1p, lax.logistic)
_CIRCULAR = _each(lax.sin, lax.cos, lax.tan, lax.asin, lax.acos, lax.atan)
_HYPERBOLIC = _each(
    lax.sinh, lax.cosh, lax.tanh, lax.asinh, lambda x: lax.acosh(x + 1), lax.atanh
)
_SPECIAL = _each(lax.lgamma, lax.digamma, lax.erf, lax.erfc, lax.erf_inv)
_BESSEL = _each(lax.bessel_i0e, lax.bessel_i1e)
_ROUNDED = _each(
    lax.floor, lax.ceil, lax.round, lax.sign, lax.abs, lax.neg, lax.is_finite
)
_ARITHMETIC = _each(lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min)
_POWERS = _each(lax.pow, lax.atan2)
_COMPARISONS = _each(lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)
_BITS = _each(lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
_INTEGER_UNARY = _each(
    lax.bitwise_not, lax.population_count, lax.clz, lax.sign, lax.abs
)
_SHIFTS = _each(
    lax.shift_left,
    lax.shift_right_arithmetic,
    lax.shift_right_logical,
    lax.rem,
    lax.div,
)


def _primitives(*names: str) -> Callable:
    """Primitives that `jax.lax` exports only as such."""
    return _each(*(getattr(lax, f"{name}_p").bind for name in names))


def _named(*names: str) -> Callable:
    """Functions of newer releases of JAX; those that this one lacks are left out."""
    return _each(*(getattr(lax, n) for n in names if hasattr(lax, n)))


def _incomplete(a, x):
    return lax.igamma(a, x), lax.igammac(a, x), lax.zeta(x + 1.5, a)


def _incomplete_grad(a, x):
    return jax.grad(lambda a: jnp.sum(lax.igamma(a, x)))(a)


def _selections(which, x, y):
    three = lax.select_n(which.astype(jnp.int32) * 2, x, y, x * y)
    return lax.select_n(which, x, y), three, lax.select_n(which[0, 0], x, y)


def _clamps(x, low):
    """Bounds that are literals, arrays, and a scalar of the program."""
    first = lax.clamp(lax.stop_gradient(low[0, 0]), x, 2.0)
    return lax.clamp(-0.5, x, 0.5), lax.clamp(low, x, low + 1), first


def _conversions(x):
    narrow = [x.astype(d) for d in (jnp.bfloat16, jnp.float16, jnp.int32, jnp.bool_)]
    return [*narrow, x.astype(jnp.complex64), (x > 0).astype(jnp.float32)]


def _bitcasts(x):
    pieces = lax.bitcast_convert_type(x, jnp.uint8)
    same = lax.bitcast_convert_type(x, jnp.int32)
    return same, pieces, lax.bitcast_convert_type(pieces, jnp.float32)


def _extended(x):
    """The dtype of scales in flax: a float32 that is combined by its maximum."""
    held = lax.convert_element_type(x, fp8_ops.fp32_max_grad)
    return lax.convert_element_type(held, jnp.float32)


def _parts(z):
    return lax.real(z), lax.imag(z), lax.conj(z), lax.abs(z), z * z


def _identities(x, z):
    held, also = lax.optimization_barrier((x, z))
    moved = jax.device_put(held)
    lax.dce_sink(moved)
    marked = set_xla_metadata(tag(moved * 2, "tagged"), key="value")
    laid = with_layout_constraint(marked, Layout((1, 0)))
    kept = checkpoint_name(lax.stop_gradient(laid), "kept")
    return kept, also, jnp.array(x, copy=True), z


def _precision(x):
    return lax.reduce_precision(x, 5, 3), lax.reduce_precision(x, 8, 23)


def _partial_sums(x, y):
    """Sums that may stay partial through everything linear."""
    a, b = jnp.sum(x, 0), jnp.sum(y * x, 0)
    scaled = lax.neg((a - b) * 3.0 / y[0])
    kept = lax.reduce_precision(jnp.where(y[1] > 0, scaled, a), 8, 23)
    both = lax.complex(kept, a)
    return lax.conj(both), lax.real(both), kept.astype(jnp.bfloat16).astype(jnp.float32)


def _not_linear(x, y):
    """Sums that must not stay partial."""
    a = jnp.sum(x, 0)
    return a * a, a + 1.0, y[0] / a, jnp.tanh(a), a.astype(jnp.int32), a > 0


def _integer_sums(i):
    a = jnp.sum(i, 0)
    return a // 3, a.astype(jnp.int8), a * 5 - a, a.astype(jnp.float32)


def _polynomial(x, y):
    if not hasattr(lax, "polynomial_p"):
        return x * y
    return lax.polynomial_p.bind(x, jnp.float32(2), y, x)


_SMOOTH = {
    "roots": (_ROOTS, X),
    "exponentials": (_EXPONENTIALS, X),
    "circular": (_CIRCULAR, X),
    "hyperbolic": (_HYPERBOLIC, X * 0.9),
    "special": (_SPECIAL, X),
    "bessel": (_BESSEL, X),
}

EXAMPLES = [
    *(Example(name, fn, (x,)) for name, (fn, x) in _SMOOTH.items()),
    *(Example(f"{name} grad", _grad(fn), (x,)) for name, (fn, x) in _SMOOTH.items()),
    Example("rounded", _ROUNDED, (SIGNED,)),
    Example("logarithm of base 2", _named("log2"), (X,)),
    Example("one minus square", _named("one_minus_square"), (X,)),
    Example("polynomial", _polynomial, (ODD, COLUMN)),
    Example("arithmetic, stretched rows", _ARITHMETIC, (SIGNED, ROW)),
    Example("arithmetic, stretched both", _ARITHMETIC, (COLUMN, ROW)),
    Example("arithmetic, scalar", lambda x: _ARITHMETIC(x, jnp.float32(2)), (ODD,)),
    Example("arithmetic, scalar argument", _ARITHMETIC, (np.float32(2), COLUMN)),
    Example("arithmetic grad", _grad(_ARITHMETIC), (SIGNED, COLUMN)),
    Example("arithmetic, bfloat16", _ARITHMETIC, (HALF, HALF[::-1])),
    Example("powers", _POWERS, (ODD, ODD[::-1])),
    Example("powers grad", _grad(_POWERS), (ODD, COLUMN)),
    Example("nextafter", lax.nextafter, (SIGNED, ROW)),
    Example("comparisons", _COMPARISONS, (SIGNED, ROW)),
    Example("total order", _primitives("eq_to", "le_to", "lt_to"), (SIGNED, ROW)),
    Example("bits", _BITS, (INT, SHIFT)),
    Example("bits of bools", _BITS, (BOOL, BOOL[::-1])),
    Example("integer unary", _INTEGER_UNARY, (INT,)),
    Example("shifts", _SHIFTS, (INT, SHIFT + 1)),
    Example("incomplete gamma", _incomplete, (X, X[::-1])),
    Example("incomplete gamma grad", _incomplete_grad, (X, X[::-1])),
    Example("polygamma", lambda x: lax.polygamma(jnp.float32(2), x), (X,)),
    Example("incomplete beta", lax.betainc, (X, X[::-1], X / 3)),
    Example("selections", _selections, (BOOL, SIGNED, SIGNED[::-1])),
    Example(
        "selections grad",
        _grad(lambda x, y: _selections(BOOL, x, y)),
        (SIGNED, ODD[:, :1] * SIGNED),
    ),
    Example("clamps", _clamps, (SIGNED, SIGNED[::-1])),
    Example("clamps grad", _grad(_clamps), (SIGNED, SIGNED[::-1])),
    Example("conversions", _conversions, (SIGNED,)),
    Example("conversion grad", _grad(lambda x: x.astype(jnp.bfloat16)), (SIGNED,)),
    Example("bitcasts", _bitcasts, (SIGNED,)),
    Example("extended dtype", _extended, (SIGNED,)),
    Example("complex parts", _parts, (COMPLEX,)),
    Example("complex of parts", lax.complex, (SIGNED, ROW)),
    Example("identities", _identities, (SIGNED, COLUMN)),
    Example("identities grad", _grad(lambda x: checkpoint_name(x, "kept")), (X,)),
    Example("precision", _precision, (SIGNED,)),
    Example("partial sums", _partial_sums, (SIGNED, SIGNED[::-1])),
    Example("sums used nonlinearly", _not_linear, (SIGNED, SIGNED[::-1])),
    Example("integer sums", _integer_sums, (INT,)),
]

# XLA's CPU compiler does not lower mulhi (jaxlib 0.12.0).
TRACED = [
    Example(
        "high half of a product",
        lambda x, y: lax.mulhi(x, y),
        (INT, SHIFT),
        since=OPS_SINCE["mulhi"],
    )
]
