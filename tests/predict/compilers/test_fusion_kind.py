"""Kinds of fusions by the op at their root."""

import pytest

from meshwright.predict.compilers.model.fusion import FusionKind, kind_of
from meshwright.program.ir import Op, Value
from meshwright.program.ops import COLLECTIVES

X = Value((8, 8), "float32")


@pytest.mark.parametrize("kind", sorted(COLLECTIVES))
def test_every_collective_is_of_kind_collective(kind):
    assert kind_of(Op(kind, (X,), (X,))) is FusionKind.COLLECTIVE


def test_an_elementwise_op_with_an_effect_is_not_fused():
    assert kind_of(Op("exp", (X,), (X,))) is FusionKind.LOOP
    assert kind_of(Op("exp", (X,), (X,), has_effect=True)) is FusionKind.OTHER
