"""The registry of ops: a factor rule, traits and a count of work per primitive.

Passes ask whether an op has a trait, such as being elementwise, and never for its name;
MLIR attaches traits to op definitions in the same way (`Elementwise`, `Commutative`).
Work is counted by the rules of XLA's cost analysis: an elementwise op counts one
operation for each element of its result, and a contraction counts two for each product
that it sums, without products with padding. Transcendental functions have a count of
their own. An op that only moves data counts nothing. To add an op, write a function
under `@rule` in a file of `program/ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from numbers import Real

from meshwright.errors import MeshwrightError, RuleError
from meshwright.program.ir import Op
from meshwright.program.records import fast_frozen
from meshwright.program.rules.rule import (
    FactorRule,
    einsum_rule,
    local_result_avals,
    opaque_rule,
)


class Trait(Enum):
    """A property that some kinds of op share; each member's value says what it means."""

    ELEMENTWISE = "an element of the result depends on operands at its position alone"
    TRANSCENDENTAL = "elementwise, and evaluates an exponential, a root or their like"
    ADDS = "the elementwise sum of two operands"
    CHOOSES = "an element of the result is that element of one of the operands"
    CONTRACTION = "multiplies two operands and sums over dims that they share"
    REDUCTION = "reduces whole dims of its operands to one element"
    ALIASES_OPERAND = "the result has the operand's bytes in the same order (bitcast)"
    MOVES = "the result holds elements of its operands at other positions"
    REPEATS = "the result is larger than all that it is made from"
    JOINS = "puts operands side by side"
    SLICES = "takes parts of its operand, at positions known when it is compiled"
    READS_AT_INDEX = "reads the part of an operand that another operand points to"
    SCATTERS = "writes updates to the positions in an operand that indices point to"
    STANDALONE = "compiled to a kernel or library call that neighbours do not fuse with"
    EXPENSIVE = (
        "takes time of its own; elementwise ops take part of their readers' time"
    )
    REGION = "runs nested programs"
    LOOP = "a region whose body runs many times"
    COLLECTIVE = "moves bytes between devices"
    COLLECTIVE_REDUCTION = "a collective that reduces over devices"
    DRAWS_FROM_STATE = "gives other numbers each time, though JAX notes no effect"
    UNPRICED = "takes time for work that nothing counts"
    SHARDING_CONSTRAINT = "an identity by which the user fixes a sharding"

    # Members are singletons; Enum hashes them by name, in Python, which is slower.
    __hash__ = object.__hash__


_KINDS: dict[Trait, set[str]] = {trait: set() for trait in Trait}


def has_trait(kind: str, trait: Trait) -> bool:
    """Whether ops of this kind have the trait."""
    return kind in _KINDS[trait]


def ops_with(trait: Trait) -> Set[str]:
    """The kinds of op that have the trait, as a live set.

    Ops that are registered later appear in it.
    """
    return _KINDS[trait]


@fast_frozen
@dataclass(frozen=True, slots=True)
class OpWork:
    """The number of arithmetic operations that one application of an op needs.

    flops: additions, multiplications, comparisons and similar operations, of any dtype.
    transcendentals: evaluations of exponentials, roots and similar functions.
    """

    flops: int = 0
    transcendentals: int = 0

    def __add__(self, other: OpWork) -> OpWork:
        return OpWork(
            self.flops + other.flops, self.transcendentals + other.transcendentals
        )

    def __mul__(self, times: int) -> OpWork:
        return OpWork(self.flops * times, self.transcendentals * times)

    def scaled(self, share: float) -> OpWork:
        """The work on a share (0 to 1) of the elements, rounded down."""
        return OpWork(int(self.flops * share), int(self.transcendentals * share))


NO_WORK = OpWork()
"""The work of an op that only moves data."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run of an op on one device, for `mw.rule(..., cost=...)`.

    products: operations of matrix products, which the matrix unit computes.
    flops: all other operations.
    num_bytes: bytes that are read from and written to main memory; by default every
        operand and result once.
    """

    products: float = 0
    flops: float = 0
    num_bytes: float | None = None

    def __post_init__(self) -> None:
        numbers = (self.products, self.flops, self.num_bytes or 0)
        if not all(isinstance(n, Real) and n >= 0 for n in numbers):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RuleError(f"a cost has numbers of 0 or more; got {self}")


CountWork = Callable[[Op], OpWork]

_COUNTS: dict[str, CountWork] = {}
StateCost = Callable[[Op], Cost]

_COSTS: dict[str, StateCost] = {}


def describe(
    *kinds: str, traits: Iterable[Trait] = (), work: CountWork | None = None
) -> None:
    """Register traits of these kinds of op, and a function that counts their work."""
    for trait in traits:
        _KINDS[trait].update(kinds)
    if work is not None:
        _COUNTS.update(dict.fromkeys(kinds, work))


def cost_of(op: Op) -> Cost | None:
    """The cost that the author of an op's rule states; `None` if there is none."""
    state = _COSTS.get(op.kind)
    if state is None:
        return None
    try:
        cost = state(op)
    except MeshwrightError:
        raise
    except Exception as fault:
        raise RuleError(
            f"the cost of {op.kind!r} failed: {type(fault).__name__}: {fault}"
        ) from fault
    if not isinstance(cost, Cost):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(f"the cost of {op.kind!r} is {cost!r:.60}; wanted a mw.Cost")
    return cost


def is_counted(kind: str) -> bool:
    """Whether the work of ops of this kind is known, if only to be none.

    It is not for a primitive without a rule, and for one whose rule a user wrote without
    a count of its work.
    """
    if kind in _COUNTS:
        return True
    fn = _RULES.get(kind)
    return fn is not None and fn.__module__.startswith("meshwright.")


def work_of(op: Op) -> OpWork:
    """The arithmetic work of one op, from its registered count.

    A region op (loop, branch or remat) has no work of its own, since callers count the
    ops of its bodies instead. An op without a registered count has none either.
    """
    count = _COUNTS.get(op.kind)
    return NO_WORK if count is None else count(op)


def log2_rounded_up(extent: int) -> int:
    """The base-2 logarithm of `extent`, rounded up, and at least 1.

    This is the number of steps of a binary merge or a binary search over `extent`
    elements.
    """
    return max(1, math.ceil(math.log2(max(extent, 2))))


RuleFn = Callable[[Op], FactorRule | str]

_RULES: dict[str, RuleFn] = {}


def rule(
    *kinds: str,
    traits: Iterable[Trait] = (),
    work: CountWork | None = None,
    cost: StateCost | None = None,
) -> Callable[[RuleFn], RuleFn]:
    """Register the factor rule of the primitives with these names; a decorator.

    The decorated function takes an `Op` (shapes, dtypes, `params`) and returns a
    `FactorRule`, or a rule in einsum notation: `mw.rule("my_matmul")(lambda op:
    "ik,kj->ij")`.
    traits: properties of these primitives, which models of compilers and the planner
        ask for.
    work: function that counts the operations of one application.
    cost: function of an `Op` on one device's part that returns a `mw.Cost`: operations
        and bytes of a kernel of your own, such as the custom call of a `jax.ffi.ffi_call`
        to "my_norm", whose kind is "ffi_call:my_norm". Without `work` and `cost` a plan
        names the op, and its figures are lower bounds.
    """
    if not kinds or not all(isinstance(kind, str) for kind in kinds):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuleError(
            f"a rule is for names of primitives, such as 'sin'; got {kinds}"
        )

    if cost is not None and not callable(cost):  # pyright: ignore[reportUnnecessaryComparison]
        raise RuleError(
            f"the cost of {kinds[0]!r} is {cost!r:.60}; wanted a function of an Op"
        )

    def register(fn: RuleFn) -> RuleFn:
        if not callable(fn):  # pyright: ignore[reportUnnecessaryComparison]
            raise RuleError(
                f"the rule of {kinds[0]!r} is {fn!r}; wanted a function of an Op"
            )
        for kind in kinds:
            if kind in _RULES:
                raise RuleError(f"op {kind!r} has a rule already")
            _RULES[kind] = fn
        describe(*kinds, traits=traits, work=work)
        if cost is not None:
            _COSTS.update(dict.fromkeys(kinds, cost))
            describe(*kinds, traits=(Trait.STANDALONE,), work=_stated_work)
        return fn

    return register


def _stated_work(op: Op) -> OpWork:
    """The operations of a stated cost."""
    cost = cost_of(op)
    return NO_WORK if cost is None else OpWork(int(cost.products + cost.flops))


def known_ops(package: str = "") -> tuple[str, ...]:
    """Names of all primitives that have a factor rule, sorted.

    package: only rules that modules of this package registered are listed; default is
        all.
    """
    return tuple(
        sorted(k for k, fn in _RULES.items() if fn.__module__.startswith(package))
    )


def rule_of(op: Op) -> FactorRule:
    """The factor rule of an op.

    If none is registered, the result is a rule that forbids any partitioning and says
    why.
    """
    fn = _RULES.get(op.kind)
    if fn is None:
        near = get_close_matches(op.kind, _RULES, n=2)
        hint = f" (near names: {', '.join(near)})" if near else ""
        return opaque_rule(op, f"primitive {op.kind!r} has no factor rule{hint}")
    found = fn(op)
    if isinstance(found, str):
        found = einsum_rule(found, op)
    if op.kind.startswith("ffi_call:") and found.local_params is None:
        return replace(found, local_params=local_result_avals)
    return found
