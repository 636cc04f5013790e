"""Which dims of a network's values are examples, and which are channels.

The batch's first dim has the examples. What a weight brings into a product or convolution
are channels; so is the last dim of the batch itself. Both follow the factors of the ops:
a dim that shares a factor with a dim of an operand has its role.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.features.codesign.nas.rewriting.network import ModelProgram
from meshwright.features.codesign.nas.synthesis.expression import Roles
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import Trait, has_trait, rule_of
from meshwright.program.rules.rule import Dims

Marks = tuple[frozenset[str], ...]
"""The roles of each dim of a value: "batch", "feature"."""


def roles_of(network: ModelProgram) -> Mapping[Atom, Roles]:
    """The roles of the dims of values that have one dim of examples.

    Where no dim or several are channels, the last one that is no example counts as them.
    """
    x = network.program.inputs[-1]
    marks: dict[Atom, Marks] = {
        x: tuple(
            frozenset(
                {"batch"} if d == 0 else {"feature"} if d == len(x.shape) - 1 else ()
            )
            for d in range(len(x.shape))
        )
    }
    for op in network.program.ops:
        if network.activations.isdisjoint(op.results):
            continue
        for value, each in _result_marks(op, marks).items():
            marks[value] = each
    found = {value: _roles(each) for value, each in marks.items()}
    return {value: roles for value, roles in found.items() if roles is not None}


def _result_marks(op: Op, marks: Mapping[Atom, Marks]) -> Mapping[Value, Marks]:
    rule = rule_of(op)
    of_factor: dict[int, set[str]] = {}
    for operand, dims in zip(op.operands, rule.operands, strict=True):
        known = marks.get(operand)
        for d, factors in enumerate(dims):
            for factor in factors:
                if known is not None:
                    of_factor.setdefault(factor, set()).update(known[d])
                elif has_trait(op.kind, Trait.CONTRACTION):
                    of_factor.setdefault(factor, set()).add("feature")
    return {
        result: _dim_marks(dims, of_factor)
        for result, dims in zip(op.results, rule.results, strict=True)
    }


def _dim_marks(dims: Dims, of_factor: Mapping[int, set[str]]) -> Marks:
    return tuple(
        frozenset[str]().union(*(of_factor.get(factor, set()) for factor in factors))
        for factors in dims
    )


def _roles(marks: Marks) -> Roles | None:
    batch = [d for d, each in enumerate(marks) if "batch" in each]
    others = [d for d in range(len(marks)) if d not in batch]
    if len(batch) != 1 or not others:
        return None
    channels = [d for d in others if "feature" in marks[d]]
    return Roles(batch[0], (channels or others)[-1])
