"""What an op's kind says of the unit at whose root it stands."""

import pytest

from meshwright.predict.compilers.hlo.fusion import FusionKind, kind_of
from meshwright.program.ir import Op, Value
from meshwright.program.ops import COLLECTIVES

X = Value((8, 8), "float32")


@pytest.mark.parametrize("kind", sorted(COLLECTIVES))
def test_every_collective_goes_over_the_links(kind):
    assert kind_of(Op(kind, (X,), (X,))) is FusionKind.COLLECTIVE


def test_an_effect_makes_an_elementwise_op_stand_alone():
    assert kind_of(Op("exp", (X,), (X,))) is FusionKind.LOOP
    assert kind_of(Op("exp", (X,), (X,), has_effect=True)) is FusionKind.OTHER
