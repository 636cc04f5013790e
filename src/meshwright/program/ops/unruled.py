"""Ops without a factor rule, and ops that no factor rule can split.

A factor rule says how an op's dims can be sharded. Region ops (loops, branches and
remat) need none: their wires (`ir.Wire`) say which values inside and outside are the
same, so that propagation and lowering enter the bodies, whose ops have rules.
Collectives are written by lowering (`rules/builder.py`). Callbacks into Python receive
complete operands, and their effects run on one device.
"""

from meshwright.program.ir import Op
from meshwright.program.rules.builder import COLLECTIVES
from meshwright.program.rules.registry import Trait, describe, rule
from meshwright.program.rules.rule import FactorRule, opaque_rule

describe("cond", "remat", "scan", "while", traits=(Trait.REGION,))
describe("scan", "while", traits=(Trait.LOOP,))
describe(*COLLECTIVES, traits=(Trait.COLLECTIVE,))
describe("all_reduce", "reduce_scatter", traits=(Trait.COLLECTIVE_REDUCTION,))
describe("columns", traits=(Trait.STANDALONE,))


describe("io_callback", "pure_callback", "shard_map", traits=(Trait.UNPRICED,))
describe("hessenberg", "random_gamma", "schur", "tridiagonal", traits=(Trait.UNPRICED,))


@rule("debug_callback", "debug_print", "io_callback")
def effect(op: Op) -> FactorRule:
    """The factor rule of callbacks with side effects, which cannot be partitioned.

    The callback runs once, on the first device of the mesh.
    """
    return opaque_rule(op, "its effect runs once, on whole operands")


@rule("pure_callback", traits=(Trait.STANDALONE,))
def pure(op: Op) -> FactorRule:
    """The factor rule of a callback without side effects, which cannot be partitioned.

    Every device calls the function on complete operands.
    """
    return opaque_rule(op, "the function that it calls is unknown")
