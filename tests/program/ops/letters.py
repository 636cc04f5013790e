"""Rules as text, for tests to compare."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from meshwright.program.capture.convert import convert
from meshwright.program.ir import Op
from meshwright.program.ops import FactorRule, rule_of
from meshwright.program.rules.rule import Dims


def last_op(fn: Callable, *args: object) -> Op:
    """The last op of a function's program."""
    return convert(jax.make_jaxpr(fn)(*args)).ops[-1]


def rule_for(fn: Callable, *args: object) -> FactorRule:
    """The rule, checked, of a function that is one op."""
    op = last_op(fn, *args)
    rule = rule_of(op)
    rule.check(op)
    return rule


def letters(rule: FactorRule) -> str:
    """`ab,-b->ab`: `-` for a dim without factors, `~` for a factor that is never split."""
    never = {f for f, n in (rule.least or {}).items() if n == rule.sizes[f]}

    def dims(value: Dims) -> str:
        return "".join(dim(factors) for factors in value)

    def dim(factors: tuple[int, ...]) -> str:
        names = "".join("~" if f in never else chr(97 + f) for f in factors)
        return f"({names})" if len(names) > 1 else names or "-"

    left, right = (",".join(map(dims, side)) for side in (rule.operands, rule.results))
    return f"{left}->{right}"


def f32(*shape: int) -> np.ndarray:
    """Zeros to trace with."""
    return np.zeros(shape, np.float32)
