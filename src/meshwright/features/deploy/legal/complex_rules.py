"""Complex ops on pairs of real arrays, by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from meshwright.features.deploy.legal.fourier import transform
from meshwright.features.deploy.legal.rewrite import call_op
from meshwright.program.ir import Atom, Op, Value

REAL = {"complex64": "float32", "complex128": "float64"}


class Parts(NamedTuple):
    """The real and the imaginary part of an array."""

    re: Any
    im: Any


def is_complex(atom: Atom) -> bool:
    """Whether an atom has a complex dtype."""
    return atom.dtype in REAL


def _parts(x: Any) -> Parts:
    return x if isinstance(x, Parts) else Parts(x, jnp.zeros_like(x))


def _mul(a: Any, b: Any) -> Parts:
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    return Parts(ar * br - ai * bi, ar * bi + ai * br)


def _div(a: Any, b: Any) -> Parts:
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    size = jnp.maximum(jnp.abs(br), jnp.abs(bi))
    size = jnp.where(size == 0, jnp.ones_like(size), size)
    br, bi = br / size, bi / size
    over = (br * br + bi * bi) * size
    return Parts((ar * br + ai * bi) / over, (ai * br - ar * bi) / over)


def _abs(z: Parts) -> Any:
    """The magnitude, by the larger part, so that no square overflows."""
    large = jnp.maximum(jnp.abs(z.re), jnp.abs(z.im))
    small = jnp.minimum(jnp.abs(z.re), jnp.abs(z.im))
    ratio = small / jnp.where(large == 0, jnp.ones_like(large), large)
    return large * jnp.sqrt(1 + ratio * ratio)


def _exp(z: Parts) -> Parts:
    size = lax.exp(z.re)
    return Parts(size * lax.cos(z.im), size * lax.sin(z.im))


def _log(z: Parts) -> Parts:
    return Parts(lax.log(_abs(z)), lax.atan2(z.im, z.re))


def _sqrt(z: Parts) -> Parts:
    size = _abs(z)
    re = lax.sqrt((size + jnp.abs(z.re)) / 2)
    im = jnp.abs(z.im) / (2 * jnp.where(re == 0, jnp.ones_like(re), re))
    first = jnp.where(z.re >= 0, re, im)
    second = jnp.where(z.re >= 0, im, re)
    return Parts(first, jnp.where(z.im < 0, -second, second))


def _integer_pow(op: Op, z: Parts) -> Parts:
    power: Any = op.params["y"]
    made = Parts(jnp.ones_like(z.re), jnp.zeros_like(z.im))
    for _ in range(abs(power)):
        made = _mul(made, z)
    return made if power >= 0 else _div(Parts(jnp.ones_like(z.re), made.im * 0), made)


def _pow(op: Op, z: Any, w: Any) -> Parts:
    del op
    found = _exp(_mul(_parts(w), _log(_parts(z))))
    return Parts(*(jnp.where(_abs(_parts(z)) == 0, 0.0, x) for x in found))


def _tanh(z: Parts) -> Parts:
    up, down = _exp(Parts(z.re, z.im)), _exp(Parts(-z.re, -z.im))
    return _div(
        Parts(up.re - down.re, up.im - down.im), Parts(up.re + down.re, up.im + down.im)
    )


def _converted(op: Op, z: Any) -> Any:
    target = op.results[0].dtype
    if target in REAL:
        return Parts(*(x.astype(REAL[target]) for x in _parts(z)))
    return z.re.astype(target)


def _real_op(op: Op, *operands: Any) -> Any:
    """The op on real operands, with a real result."""
    params = {
        key: None if key == "preferred_element_type" else value
        for key, value in op.params.items()
    }
    results = tuple(Value(r.shape, REAL.get(r.dtype, r.dtype)) for r in op.results)
    return call_op(replace(op, params=params, results=results), *operands)


def _dot(op: Op, a: Any, b: Any) -> Parts:
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    re = _real_op(op, ar, br) - _real_op(op, ai, bi)
    return Parts(re, _real_op(op, ar, bi) + _real_op(op, ai, br))


def _apart(op: Op, *operands: Any) -> Any:
    """The op on all real parts and on all imaginary parts, as it moves or adds elements."""
    keep = {i for i, a in enumerate(op.operands) if not is_complex(a)}
    made = [
        _real_op(op, *(x if i in keep else x[part] for i, x in enumerate(operands)))
        for part in range(2)
    ]
    if isinstance(made[0], list):
        return [Parts(re, im) for re, im in zip(*made, strict=True)]
    return Parts(*made)


def _product(op: Op, z: Parts) -> Parts:
    """The product over dims, element after element."""
    axes: Any = op.params["axes"]
    for axis in sorted(axes, reverse=True):
        parts = [list(jnp.moveaxis(p, axis, 0)) for p in z]
        made = Parts(parts[0][0], parts[1][0])
        for re, im in zip(parts[0][1:], parts[1][1:], strict=True):
            made = _mul(made, Parts(re, im))
        z = made
    return z


def _fft(op: Op, z: Any) -> Any:
    kind = str(getattr(op.params["fft_type"], "name", op.params["fft_type"]))
    kind = kind.rsplit(".", 1)[-1].upper()
    lengths: Any = op.params["fft_lengths"]
    re, im = z if isinstance(z, Parts) else (z, None)
    found = transform(re, im, kind, lengths)
    return Parts(*found) if isinstance(found, tuple) else found


_APART = (
    "add", "add_any", "broadcast_in_dim", "concatenate", "copy", "copy_p", "cumsum",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "name", "neg",
    "optimization_barrier", "pad", "reduce_sum", "reshape", "rev", "scatter",
    "scatter-add", "select_n", "slice", "split", "squeeze", "stack", "stop_gradient",
    "sub", "tile", "transpose", "unstack", "reduce_window_sum",
)  # fmt: skip

RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_APART, _apart),
    "complex": lambda op, re, im: Parts(re, im),
    "real": lambda op, z: z.re,
    "imag": lambda op, z: z.im,
    "conj": lambda op, z: Parts(z.re, -z.im) if isinstance(z, Parts) else _parts(z),
    "abs": lambda op, z: _abs(z),
    "mul": lambda op, a, b: _mul(a, b),
    "square": lambda op, z: _mul(z, z),
    "div": lambda op, a, b: _div(a, b),
    "exp": lambda op, z: _exp(z),
    "log": lambda op, z: _log(z),
    "sqrt": lambda op, z: _sqrt(z),
    "tanh": lambda op, z: _tanh(z),
    "sign": lambda op, z: _div(z, Parts(_abs(z), jnp.zeros_like(z.re))),
    "integer_pow": _integer_pow,
    "pow": _pow,
    "dot_general": _dot,
    "convert_element_type": _converted,
    "eq": lambda op, a, b: (a.re == b.re) & (a.im == b.im),
    "ne": lambda op, a, b: (a.re != b.re) | (a.im != b.im),
    "is_finite": lambda op, z: lax.is_finite(z.re) & lax.is_finite(z.im),
    "reduce_prod": _product,
    "fft": _fft,
}
"""By kind of op, a function of the op and its operands; complex ones are `Parts`."""
