"""Families: one element at a time, and changes of dtype."""

from __future__ import annotations

import numpy as np

from tests.fuzz.pool import MAX_ELEMENTS, NoFitError, Scope, Var

SQUASHED = "jnp.tanh({x})"
UNARY = (
    ("jnp.sin({x})", 1.0), ("jnp.cos({x})", 1.0), ("jnp.tanh({x})", 1.0),
    ("jnp.exp(jnp.tanh({x}))", 2.7), ("jnp.log1p({x} * {x})", 2.0),
    ("jnp.log(1.5 + jnp.tanh({x}))", 1.0), ("jnp.sqrt(1 + {x} * {x})", 3.0),
    ("lax.rsqrt(1 + {x} * {x})", 1.0), ("jnp.cbrt(2 + jnp.tanh({x}))", 2.0),
    ("jnp.abs({x})", 0), ("-{x}", 0), ("jnp.square(jnp.tanh({x}))", 1.0),
    ("lax.integer_pow(jnp.tanh({x}), 3)", 1.0), ("jnp.expm1(jnp.tanh({x}))", 1.7),
    ("jax.nn.relu({x})", 0), ("jax.nn.gelu({x})", 0), ("jax.nn.silu({x})", 0),
    ("jax.nn.gelu({x}, approximate=False)", 0), ("jax.nn.sigmoid({x})", 1.0),
    ("jax.nn.softplus({x})", 3.0), ("jax.nn.elu({x})", 0), ("jax.nn.soft_sign({x})", 1.0),
    ("jax.nn.leaky_relu({x})", 0), ("jax.scipy.special.erf({x})", 1.0),
    ("lax.erfc({x})", 2.0), ("lax.erf_inv(0.9 * jnp.tanh({x}))", 1.2),
    ("jnp.arctan({x})", 1.5), ("jnp.arcsin(0.9 * jnp.tanh({x}))", 1.1),
    ("jnp.arccos(0.9 * jnp.tanh({x}))", 2.7), ("jnp.sinh(jnp.tanh({x}))", 1.2),
    ("jnp.cosh(jnp.tanh({x}))", 1.6), ("jnp.arcsinh({x})", 2.0),
    ("jnp.arccosh(2 + jnp.tanh({x}))", 1.8), ("jnp.arctanh(0.9 * jnp.tanh({x}))", 1.0),
    ("jnp.exp2(jnp.tanh({x}))", 2.0), ("jnp.tan(0.7 * jnp.tanh({x}))", 0.9),
    ("lax.lgamma(2 + jnp.tanh({x}))", 0.7), ("lax.digamma(2 + jnp.tanh({x}))", 1.0),
    ("jnp.power(1.5 + jnp.tanh({x}), 0.7)", 2.0), ("jnp.clip({x}, -0.5, 0.5)", 0.5),
    ("jnp.where({x} > 0, {x}, 0.1 * {x})", 0), ("jnp.nan_to_num({x})", 0),
    ("lax.reduce_precision(lax.stop_gradient({x}), 5, 10)", 0),
    ("{x} / 1.7", 0), ("0.3 + {x} * 0.5", 2.0), ("jnp.reciprocal(2 + jnp.tanh({x}))", 1.0),
    ("lax.stop_gradient({x})", 0), ("jnp.positive({x})", 0),
    ("jax.ad_checkpoint.checkpoint_name({x}, 'kept')", 0), ("jnp.log2(2 + jnp.tanh({x}))", 1.6),
    ("jax.scipy.special.i1e({x})", 1.0), ("jax.scipy.special.gammainc(2.0, 1 + jnp.square({x}))", 1.0),
    ("lax.logistic({x})", 1.0), ("jnp.sinc({x})", 1.0), ("jnp.cbrt({x} + 5)", 2.0),
    ("jnp.where(jnp.isfinite({x}), {x}, 0)", 0), ("jnp.copy({x})", 0),
    ("lax.optimization_barrier({x})", 0), ("jax.nn.hard_tanh({x})", 1.0),
    ("jax.scipy.special.i0e({x})", 1.0),
)  # fmt: skip
"""(code, bound of the result); bound 0 keeps the operand's."""

ROUNDED = ("jnp.floor(4 * {x})", "jnp.ceil({x})", "jnp.round(3 * {x})", "jnp.sign({x})")
BINARY = (
    ("{a} + {b}", "sum"), ("{a} - {b}", "sum"), ("{a} * {b}", "product"),
    ("jnp.maximum({a}, {b})", "max"), ("jnp.minimum({a}, {b})", "max"),
    ("{a} / (1.5 + jnp.square({b}))", "first"), ("jnp.arctan2({a}, 3.5 + {b})", "one"),
    ("jnp.power(1.5 + jnp.tanh({a}), jnp.tanh({b}))", "max"),
    ("jnp.hypot({a}, 1 + jnp.abs({b}))", "sum"), ("jnp.logaddexp({a}, {b})", "sum"),
    ("jnp.where({a} > {b}, {a}, 0.5 * {b})", "max"),
    ("0.9 * {a} + 0.1 * {b}", "max"), ("jnp.square({a} - {b})", "square"),
    ("lax.clamp(-1.0, {a}, 1.0) + 0 * {b}", "max"),
)  # fmt: skip
INT_UNARY = (
    "-{x}", "jnp.abs({x})", "{x} % 3", "{x} // 2", "jnp.sign({x})", "{x} << 1", "~{x}",
    "lax.population_count({x})", "lax.clz({x})", "{x} >> 1", "jnp.clip({x}, 0, 5)",
    "lax.integer_pow({x} % 3, 2)", "lax.shift_right_logical({x}, 28)",
)  # fmt: skip
INT_BINARY = (
    "({a} + {b}) % 11", "({a} - {b}) % 7", "({a} * {b}) % 5", "jnp.maximum({a}, {b})",
    "jnp.minimum({a}, {b})", "{a} // (jnp.abs({b}) + 1)", "{a} % (jnp.abs({b}) + 1)",
    "({a} & {b})", "({a} | {b})", "({a} ^ {b})", "jnp.bitwise_xor({a}, {b} >> 1)",
)  # fmt: skip
COMPARES = ("<", "<=", "==", "!=", ">", ">=")


def bound_of(rule: str, a: Var, b: Var) -> float:
    """The magnitude of what two operands make."""
    return {
        "sum": a.bound + b.bound,
        "product": a.bound * b.bound,
        "max": max(a.bound, b.bound, 2.0),
        "first": a.bound,
        "one": 1.0,
        "square": (a.bound + b.bound) ** 2,
    }[rule]


def partner(s: Scope, a: Var, same_dtype: bool = True) -> Var:
    """An array that broadcasts with `a` to something small."""

    def fits(b: Var) -> bool:
        if same_dtype and b.dtype != a.dtype:
            return False
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return False
        return int(np.prod(shape)) <= MAX_ELEMENTS

    others = [v for v in s.pool if v != a and fits(v)]
    if not others or s.draft.chance(0.15):
        shape = tuple(1 if s.draft.chance(0.2) else n for n in a.shape)
        if s.depth == 0 and not a.dtype.startswith("c"):
            return s.input(shape[s.rng.randrange(len(shape) + 1) :], a.dtype)
        if not others:
            raise NoFitError
    return s.rng.choice(others)


def unary(s: Scope) -> None:
    """One float operand."""
    x = s.floats()
    code, bound = s.rng.choice(UNARY)
    s.emit(code.format(x=x.name), bound or x.bound, x.is_exact and code == "-{x}")


def binary(s: Scope) -> None:
    """Two float operands, stretched against each other."""
    a = s.floats()
    b = partner(s, a)
    code, rule = s.rng.choice(BINARY)
    s.emit(code.format(a=a.name, b=b.name), bound_of(rule, a, b))


def rounded(s: Scope) -> None:
    """Ops with jumps, on numbers without rounding."""
    x = s.pick(lambda v: v.is_float and v.is_exact)
    s.emit(s.rng.choice(ROUNDED).format(x=x.name), 4 * x.bound, True)


def integer(s: Scope) -> None:
    """Integers, one operand or two."""
    a = s.ints()
    if s.draft.chance(0.5):
        s.emit(s.rng.choice(INT_UNARY).format(x=a.name), 12, True)
    else:
        b = partner(s, a)
        s.emit(s.rng.choice(INT_BINARY).format(a=a.name, b=b.name), 12, True)


def compare(s: Scope) -> None:
    """A mask from two exact operands, or from one and a number."""
    a = s.exact()
    op = s.rng.choice(COMPARES)
    if s.draft.chance(0.5):
        s.emit(f"{a.name} {op} {s.rng.choice((0, 1, 2))}", 1, True)
        return
    b = s.pick(lambda v: v.is_exact and v.dtype == a.dtype)
    if int(np.prod(np.broadcast_shapes(a.shape, b.shape))) > MAX_ELEMENTS:
        raise NoFitError
    s.emit(f"{a.name} {op} {b.name}", 1, True)


def logic(s: Scope) -> None:
    """Masks from masks."""
    a = s.pick(lambda v: v.dtype == "bool")
    b = partner(s, a)
    code = s.rng.choice(("{a} & {b}", "{a} | {b}", "{a} ^ {b}", "~{a}"))
    s.emit(code.format(a=a.name, b=b.name), 1, True)


def where(s: Scope) -> None:
    """A choice between two arrays, or one and a number."""
    a = s.floats()
    mask = s.masks(a.shape)
    if s.draft.chance(0.5):
        other = s.rng.choice(("0.0", "-1.5"))
        s.emit(f"jnp.where({mask.name}, {a.name}, {other})", max(a.bound, 1.5))
    else:
        b = partner(s, a)
        code = f"jnp.where({mask.name}, {a.name}, {b.name})"
        s.emit(code, max(a.bound, b.bound))


def cast(s: Scope) -> None:
    """To another dtype."""
    a = s.arrays()
    name = a.name
    if a.is_float:
        kinds = [d for d in s.draft.dtypes if d != a.dtype]
        if a.is_exact and s.draft.chance(0.5):
            s.emit(f"jnp.round(3 * {s.smooth(name)}).astype(jnp.int32)", 12, True)
        elif kinds:
            s.emit(f"{name}.astype(jnp.{s.rng.choice(kinds)})", a.bound)
        else:
            raise NoFitError
    elif a.dtype == "bool":
        to = s.rng.choice(("float32", "int32"))
        s.emit(f"{name}.astype(jnp.{to})", 1, True)
    elif a.dtype == "int32":
        s.emit(f"jnp.sin({name}.astype(jnp.float32))", 1)
    else:
        s.emit(f"jnp.{s.rng.choice(('real', 'imag'))}({name})", a.bound)


def complex_(s: Scope) -> None:
    """A complex number's life is short: made, changed, made real."""
    a = s.pick(lambda v: v.dtype == "float32")
    code = s.rng.choice(
        (
            "jnp.real(jnp.exp(1j * {x}))",
            "jnp.imag(jnp.conj({x} + 2j) * (1 + 1j * {x}))",
            "jnp.abs(lax.complex({x}, 1.5 + 0 * {x}))",
            "jnp.real(jnp.tanh(0.5j * {x}) * (1 - 2j))",
            "jnp.real(jnp.sqrt(2 + 1j * jnp.tanh({x})))",
        )  # fmt: skip
    )
    s.emit(code.format(x=a.name), 2 * a.bound + 2)


FAMILIES = (
    (unary, 10), (binary, 12), (rounded, 2), (integer, 4), (compare, 4), (logic, 2),
    (where, 5), (cast, 4), (complex_, 1),
)  # fmt: skip
