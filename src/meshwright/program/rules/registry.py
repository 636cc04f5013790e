"""The registry of ops: by the primitive's name its factor rule, traits and work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from meshwright.errors import RuleError
from meshwright.program.ir import Op
from meshwright.program.rules.rule import FactorRule, einsum_rule, opaque_rule
from meshwright.program.rules.traits import Trait, add_traits
from meshwright.program.rules.work import CountWork, count_work

RuleFn = Callable[[Op], FactorRule | str]

_RULES: dict[str, RuleFn] = {}


def rule(
    *kinds: str, traits: Iterable[Trait] = (), work: CountWork | None = None
) -> Callable[[RuleFn], RuleFn]:
    """Register a rule for primitives by name.

    The decorated function takes an `Op` (shapes, dtypes, `params`) and returns a
    `FactorRule`, or the letters of one: `mw.rule("my_matmul")(lambda op: "ik,kj->ij")`.
    traits: what these primitives are; passes of compilers and of the planner ask for it.
    work: counts the operations of one application; without it the op counts as free.
    """

    def register(fn: RuleFn) -> RuleFn:
        for kind in kinds:
            if kind in _RULES:
                raise RuleError(f"op {kind!r} has a rule already")
            _RULES[kind] = fn
        add_traits(traits, *kinds)
        if work is not None:
            count_work(work, *kinds)
        return fn

    return register


def known_ops(package: str = "") -> tuple[str, ...]:
    """Names of all primitives that have a rule, sorted.

    package: counts only rules that modules of this package registered; default is all.
    """
    return tuple(
        sorted(k for k, fn in _RULES.items() if fn.__module__.startswith(package))
    )


def rule_of(op: Op) -> FactorRule:
    """The rule of an op; if none is registered, an opaque rule that says so."""
    fn = _RULES.get(op.kind)
    if fn is None:
        return opaque_rule(op, _missing(op.kind))
    found = fn(op)
    if isinstance(found, str):
        return einsum_rule(found, op)
    return found


def _missing(kind: str) -> str:
    near = get_close_matches(kind, _RULES, n=2)
    hint = f" (near names: {', '.join(near)})" if near else ""
    return f"primitive {kind!r} has no factor rule{hint}"
