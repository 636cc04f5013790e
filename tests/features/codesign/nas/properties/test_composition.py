"""Laws: properties of a path follow from those of its parts, as inferred for the whole."""

from functools import reduce
from random import Random

import jax
import jax.numpy as jnp
import pytest

from meshwright.features.codesign.nas.properties import depth, mixing
from meshwright.features.codesign.nas.properties.properties import (
    compose,
    distance,
    input_properties,
    properties_of,
    target_of,
)
from meshwright.features.codesign.nas.synthesis.choices import (
    Typed,
    result_of,
    unary_pieces,
)
from meshwright.features.codesign.nas.synthesis.expression import Roles, step_properties
from meshwright.features.codesign.nas.synthesis.pieces import APPLY, weights_of
from meshwright.program.capture import capture

SHAPE = (16, 16, 16, 8)
"""Windows of three pieces in a row are smaller than each of its dims."""


def drawn_pieces(seed: int):
    """Three pieces in a row on a value of SHAPE, each with the shape of its operand."""
    rng = Random(seed)
    value = Typed(SHAPE, Roles(0, 3))
    for _ in range(3):
        piece = rng.choice(list(unary_pieces(value, value)))
        yield piece, value.shape
        value = result_of(piece, value, step_properties(piece, (value.shape,)).shape)


def whole_properties(pieces):
    def fn(x):
        for piece, shape in pieces:
            weights = [jnp.ones(spec.shape) for spec in weights_of(piece, shape)]
            x = APPLY[piece.kind](piece, weights, x)
        return x

    program = capture(fn, (jax.ShapeDtypeStruct(SHAPE, "float32"),)).program
    return properties_of(program, program.outputs[0], program.inputs)


@pytest.mark.parametrize("seed", range(25))
def test_a_path_has_the_composed_properties(seed: int):
    pieces = list(drawn_pieces(seed))
    parts = [step_properties(piece, (shape,)) for piece, shape in pieces]
    composed = reduce(
        lambda now, op: compose([now], op), parts, input_properties([SHAPE], 0)
    )
    whole = whole_properties(pieces)
    assert composed == whole
    assert distance(target_of(whole), composed) == 0


@pytest.mark.parametrize("seed", range(8))
def test_composition_is_associative_and_the_input_neutral(seed: int):
    (one, two, three) = (step_properties(p, (s,)) for p, s in drawn_pieces(seed))
    for law, kind in ((mixing, "mixing"), (depth, "depth")):
        a, b, c = (getattr(each, kind)[0] for each in (one, two, three))
        assert law.compose(law.compose(a, b), c) == law.compose(a, law.compose(b, c))
    same = input_properties([SHAPE], 0)
    assert compose([same], one) == one


def test_parallel_paths_have_the_larger_class():
    wide = mixing.Mixing((3, 1), (frozenset({0, 1}), frozenset({1})), 2)
    windowed = mixing.Mixing((1, 2), (frozenset({0}), frozenset({1})), 2)
    joined = mixing.join(wide, windowed)
    assert joined is not None
    assert joined.matrix == ((3, 3), (0, 2))
    assert mixing.join(None, wide) == wide
    assert mixing.missing_mixing(joined, wide) == pytest.approx(2 / 5)
    assert mixing.missing_mixing(wide, joined) == 0


@pytest.mark.parametrize(
    ("fn", "runs"),
    [
        (lambda x: x, 0),
        (lambda x: 3 * x + 1, 1),
        (lambda x: jnp.tanh(2 * x), 2),
        (lambda x: jnp.sin(jnp.tanh(2 * x)), 2),
        (lambda x: jnp.flip(jnp.tanh(2 * x)) * 2, 3),
        (lambda x: jnp.tanh(2 * x).sum(0), 3),
        (lambda x: x + jnp.tanh(2 * x).sum(0), 1),
        (lambda x: jax.nn.relu(x), 1),
        (lambda x: jax.nn.softmax(x) @ x, 3),
        # The variance of a norm is a statistic: it is reduced, and repeated again.
        (lambda x: (x - x.mean()) * jax.lax.rsqrt(jnp.square(x - x.mean()).mean()), 1),
    ],
)
def test_depth_counts_runs_of_the_deepest_path(fn, runs: int):
    program = capture(fn, (jax.ShapeDtypeStruct((4, 4), "float32"),)).program
    (found,) = depth.depth_of(program, program.outputs[0], program.inputs)
    assert found is not None
    assert found.most == runs
