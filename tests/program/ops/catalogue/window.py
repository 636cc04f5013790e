"""Windows that reduce: pooling with strides, padding and dilation, and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(14)
_X = _RNG.normal(size=(2, 16, 8, 2)).astype(np.float32)
_LINE = _RNG.permutation(32).astype(np.float32)
_INT = _RNG.integers(-9, 9, (16, 4)).astype(np.int32)
_BOOL = _RNG.integers(0, 2, (16, 4)).astype(bool)
_ONE = (1, 1, 1, 1)

_MONOIDS = {
    "sum": (np.float32(0), lax.add),
    "max": (np.float32(-np.inf), lax.max),
    "min": (np.float32(np.inf), lax.min),
}


def _pool(name, window, strides, padding, **more):
    init, combine = _MONOIDS[name]
    return lambda x: lax.reduce_window(
        x, init, combine, window, strides, padding, **more
    )


_FORMS = {
    "halves": ((1, 2, 2, 1), (1, 2, 2, 1), "VALID", {}),
    "overlapping": ((1, 3, 3, 1), (1, 2, 2, 1), "SAME", {}),
    "same": ((1, 3, 2, 1), _ONE, "SAME", {}),
    "same_lower": ((1, 3, 2, 1), _ONE, "SAME_LOWER", {}),
    "torch": ((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)), {}),
    "valid": ((1, 3, 3, 1), _ONE, "VALID", {}),
    "uneven": ((2, 5, 1, 1), (1, 3, 1, 1), "VALID", {}),
    "skipping": ((1, 1, 2, 1), (1, 2, 4, 1), "VALID", {}),
    "loose": ((1, 2, 1, 1), (1, 2, 1, 1), ((0, 0), (0, 1), (0, 0), (0, 0)), {}),
    "outside": ((1, 2, 1, 1), (1, 4, 1, 1), ((0, 0), (3, 0), (0, 0), (0, 0)), {}),
    "dilated": (
        (1, 3, 1, 1),
        _ONE,
        ((0, 0), (2, 2), (0, 0), (0, 0)),
        {"window_dilation": (1, 2, 1, 1)},
    ),
    "spread": (
        (1, 2, 1, 1),
        _ONE,
        ((0, 0), (1, 1), (0, 0), (0, 0)),
        {"base_dilation": (1, 2, 1, 1)},
    ),
}


def _gradient(fn):
    return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))


def _tangent(fn):
    return lambda x: jax.jvp(fn, (x,), (jnp.cos(x),))


def _any_computation(x):
    return lax.reduce_window(
        x, np.float32(-np.inf), jnp.logaddexp, (1, 3, 1, 1), _ONE, "SAME"
    )


def _known_computation(x):
    return lax.reduce_window(
        x, np.float32(1), lambda a, b: jnp.multiply(a, b), (1, 3, 1, 1), _ONE, "SAME"
    )


def _known_max(x, init):
    return lax.reduce_window(x, init, lax.max, (1, 3, 2, 1), (1, 2, 1, 1), "SAME")


def _traced_initial(x, init):
    return lax.reduce_window(x, init, lax.mul, (1, 3, 2, 1), (1, 1, 2, 1), "SAME")


def _pairs(x):
    def best(a, b):
        first = a[0] >= b[0]
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    init = (np.float32(-np.inf), np.float32(0))
    return lax.reduce_window((x, -x), init, best, (3,), (1,), "SAME")


def _select_and_scatter(window, strides):
    def scalar(combine):
        closed = jax.make_jaxpr(combine)(np.float32(0), np.float32(0))
        return closed.jaxpr

    def fn(operand, source):
        return lax.select_and_scatter_p.bind(
            operand,
            source,
            jnp.float32(0),
            select_jaxpr=scalar(lax.ge),
            select_consts=(),
            scatter_jaxpr=scalar(lax.add),
            scatter_consts=(),
            window_dimensions=window,
            window_strides=strides,
            padding=((0, 0),) * 2,
        )

    return fn


def _gather_in_windows(strides):
    def fn(tangents, operand):
        return lax.select_and_gather_add_p.bind(
            tangents,
            operand,
            select_prim=lax.ge_p,
            window_dimensions=(3, 1),
            window_strides=strides,
            padding=((1, 1), (0, 0)),
            base_dilation=(1, 1),
            window_dilation=(1, 1),
        )

    return fn


def _pooling(name, form):
    *args, more = _FORMS[form]
    return Example(f"reduce_window_{name}_{form}", _pool(name, *args, **more), (_X,))


def _derived(kind, derive, name, form):
    *args, more = _FORMS[form]
    return Example(f"{kind}_{name}_{form}", derive(_pool(name, *args, **more)), (_X,))


MORE: list[Example] = [
    *(_pooling(name, form) for name in ("sum", "min") for form in _FORMS),
    *(
        _derived("grad", _gradient, name, form)
        for name in ("sum", "max")
        for form in _FORMS
        if name == "sum" or form != "dilated"
    ),
]
"""Further forms, for a longer run."""

EXAMPLES: list[Example] = [
    *(_pooling("max", form) for form in _FORMS),
    *(_pooling("sum", form) for form in ("halves", "overlapping", "dilated")),
    _pooling("min", "same"),
    *(_derived("grad", _gradient, "max", form) for form in ("halves", "overlapping")),
    _derived("grad", _gradient, "sum", "halves"),
    *(
        _derived("jvp", _tangent, name, form)
        for name, form in (("max", "overlapping"), ("min", "dilated"))
    ),
    Example(
        "reduce_window_int",
        lambda x: lax.reduce_window(
            x, np.iinfo(np.int32).min, lax.max, (3, 1), (1, 1), "SAME"
        ),
        (_INT,),
    ),
    Example(
        "reduce_window_bool",
        lambda x: lax.reduce_window(x, True, lax.min, (3, 1), (1, 1), "SAME"),
        (_BOOL,),
    ),
    Example(
        "reduce_window_line",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (9,), (1,), "SAME"),
        (_LINE,),
    ),
    Example("reduce_window_any", _any_computation, (_X,)),
    Example("reduce_window_initial", _traced_initial, (_X, np.float32(1.5))),
    Example("reduce_window_pairs", _pairs, (_LINE,)),
    Example("reduce_window_known", _known_computation, (_X,)),
    Example("reduce_window_known_max", _known_max, (_X, np.float32(0.5))),
    Example(
        "select_and_scatter",
        _select_and_scatter((2, 1), (2, 1)),
        (_LINE.reshape(8, 4), _LINE[:16].reshape(4, 4)),
    ),
    Example(
        "select_and_scatter_overlapping",
        _select_and_scatter((3, 1), (1, 1)),
        (_LINE.reshape(8, 4), _LINE[:24].reshape(6, 4)),
    ),
    Example(
        "select_and_gather_add",
        _gather_in_windows((2, 1)),
        (np.sin(_LINE).reshape(16, 2), _LINE.reshape(16, 2)),
    ),
]
