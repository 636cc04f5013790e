"""Op traits: what an op is, beyond its dims, so that passes ask for a trait, not a name.

MLIR attaches traits to op definitions in the same way (`Elementwise`, `Commutative`).
A trait is registered beside the factor rule, by `rule(..., traits=...)`; an op that has
no factor rule (a loop, a collective) gets its traits from `add_traits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import Enum


class Trait(Enum):
    """A property that some kinds of op share; the value says what holds of them."""

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
    SHARDING_CONSTRAINT = "an identity by which the user fixes a sharding"

    # Members are singletons; Enum hashes them by name, in Python, which is slower.
    __hash__ = object.__hash__


_KINDS: dict[Trait, set[str]] = {trait: set() for trait in Trait}


def add_traits(traits: Iterable[Trait], *kinds: str) -> None:
    """Give traits to kinds of op."""
    for trait in traits:
        _KINDS[trait].update(kinds)


def has_trait(kind: str, trait: Trait) -> bool:
    """Whether ops of this kind have the trait."""
    return kind in _KINDS[trait]


def ops_with(trait: Trait) -> Set[str]:
    """The kinds of op that have the trait.

    The set is live: kinds that are registered later appear in it.
    """
    return _KINDS[trait]
