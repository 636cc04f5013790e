"""Every piece that is offered for a value can be applied to it."""

from random import Random

import pytest

from meshwright.features.codesign.nas.synthesis.choices import (
    Typed,
    result_of,
    unary_pieces,
)
from meshwright.features.codesign.nas.synthesis.expression import Roles, step_program


def drawn_value(rng: Random) -> Typed:
    """A value of 2 to 4 dims, in any order of examples and channels."""
    shape = tuple(rng.choice((1, 2, 3, 4, 8)) for _ in range(rng.randint(2, 4)))
    return Typed(shape, Roles(*rng.sample(range(len(shape)), 2)))


@pytest.mark.parametrize("seed", range(16))
def test_every_piece_on_offer_can_be_applied(seed: int):
    rng = Random(seed)
    value, wanted = drawn_value(rng), drawn_value(rng)
    for _ in range(4):
        offered = list(unary_pieces(value, wanted))
        programs = [step_program(piece, (value.shape,)) for piece in offered]
        results = [
            result_of(piece, value, program.outputs[0].shape)
            for piece, program in zip(offered, programs, strict=True)
        ]
        for result in results:
            rank = len(result.shape)
            roles = (result.roles.batch, result.roles.feature)
            assert len(set(roles)) == 2
            assert all(0 <= dim < rank for dim in roles)
        value = rng.choice(results)
