"""Spaces of nets: the published nets are points of them, and what is drawn can be built."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.codesign import nas
from meshwright.errors import SearchError
from zoo import image_space, sequence_space
from zoo.efficientnet import num_macs, num_weights
from zoo.efficientnet_sizes import SIZES
from zoo.mbconv import batch_to_space, space_to_batch
from zoo.primer import targets
from zoo.workload import num_parameters


@pytest.mark.parametrize("name", SIZES)
def test_every_published_net_is_a_point_of_the_space_of_images(name):
    space, point = image_space.image_space(), image_space.POINTS[name]
    assert space.decode(space.encode(point)) == point
    assert not space.broken(point)
    config = image_space.config_of(point, dropout=SIZES[name].dropout)
    assert config == SIZES[name]


@pytest.mark.parametrize(
    ("name", "millions", "giga"),
    [("b0", 5.3, 0.39), ("x_b0", 7.58, 0.92), ("edge_s", None, 4.5 * 0.39)],
)
def test_points_have_the_published_counts(name, millions, giga):
    config = image_space.config_of(image_space.POINTS[name])
    if millions:
        assert num_weights(config) == pytest.approx(millions * 1e6, rel=0.02)
    assert num_macs(config) == pytest.approx(giga * 1e9, rel=0.05)


def _parameters(module):
    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)
    return num_parameters(shapes["params"])


@pytest.mark.parametrize("name", ["primer_medium", "primer_ez_medium", "primer_large"])
def test_every_published_decoder_is_a_point_of_the_space_of_sequences(name):
    space, point = sequence_space.sequence_space(), sequence_space.POINTS[name]
    assert space.decode(space.encode(point)) == point
    assert not space.broken(point)
    task = {"vocab": 32_128, "sequence": 512, "batch": 128, "rate": 1e-3}
    size = sequence_space.PUBLISHED[name]
    assert sequence_space.config_of(point, **task) == size
    found = _parameters(sequence_space.build(point, **task))
    assert found == num_parameters(targets[name]()[1][0].params)
    millions = 537 if "large" in name else 110
    assert found == pytest.approx(millions * 1e6, rel=0.02)


def _drawn(space, count):
    """Candidates that a search tries first."""
    front = nas.search(
        space, lambda c: {"size": len(str(c))}, objectives={"size": "min"},
        engine="random", trials=count,
    )  # fmt: skip
    return [trial.candidate for trial in front.front.trials]


def test_what_a_search_draws_can_be_built():
    stages = nas.Repeat(image_space.stage_space(channels=nas.Range(8, 32, 8)), 1, 3)
    images = image_space.image_space(
        size=nas.Choice(16, 24, 32), stages=stages, width=1.0, depth=1.0
    )
    shape = jax.ShapeDtypeStruct
    kinds = set()
    for candidate in _drawn(images, 12):
        net = image_space.build(candidate, classes=7)
        image = shape((2, candidate["size"], candidate["size"], 3), jnp.float32)
        init = partial(net.init, train=False)
        variables = jax.eval_shape(init, jax.random.key(0), image)
        scores = jax.eval_shape(partial(net.apply, train=False), variables, image)
        assert scores.shape == (2, 7)
        kinds |= {stage["rearrange"] for stage in candidate["stages"]}
    assert kinds == {"none", "to_depth", "to_batch"}
    sequences = sequence_space.sequence_space(
        layers=1, d_model=32, heads=nas.Range(1, 4)
    )
    for candidate in _drawn(sequences, 6):
        assert _parameters(sequence_space.build(candidate)) > 0


def test_nets_that_cannot_be_built_are_refused():
    point = image_space.POINTS["b0"]
    first, second, *rest = point["stages"]
    wrong = {
        "ends in a stage of stride 2; none": [{**first, "rearrange": "to_depth"}],
        "divides a side by 4; got 14": [
            {**each, "rearrange": "to_batch"} for each in point["stages"]
        ],
        "not to both|which begins none|stride 1": [
            first, {**second, "rearrange": "to_depth"}, *rest
        ],
    }  # fmt: skip
    for words, stages in wrong.items():
        with pytest.raises(ValueError, match=words):
            image_space.config_of({**point, "stages": stages})
    plain = {**sequence_space.POINTS["primer_ez_small"], "queries_per_key": 3}
    with pytest.raises(ValueError, match="3 queries per key do not divide"):
        sequence_space.config_of(plain)
    with pytest.raises(SearchError, match="channels is 17"):
        image_space.image_space().encode(
            {**point, "stages": [{**first, "channels": 17}]}
        )


def test_space_to_batch_takes_every_second_pixel_and_goes_back():
    x = np.arange(2 * 4 * 6 * 6 * 3).reshape(8, 6, 6, 3)
    y = space_to_batch(jnp.asarray(x))
    assert y.shape == (32, 3, 3, 3)
    np.testing.assert_array_equal(y[3], x[0, 1::2, 1::2])
    np.testing.assert_array_equal(y[4], x[1, ::2, ::2])
    np.testing.assert_array_equal(batch_to_space(y), x)
    with pytest.raises(ValueError, match="halves the pixels of a side; got 5"):
        space_to_batch(jnp.zeros((1, 5, 5, 1)))


def test_one_by_one_kernels_do_not_notice_space_to_batch():
    """Without squeeze and in use, a split stage computes what a whole one does."""
    stage = {**image_space.POINTS["b0"]["stages"][0], "kernel": 1, "channels": 8}
    net = {**image_space.POINTS["b0"], "size": 16, "stem": 8, "head": 16}
    net |= {"squeeze": 0.0, "stages": [stage]}
    whole = image_space.build(net, classes=3)
    split = replace(
        whole,
        config=image_space.config_of(
            {**net, "stages": [{**stage, "rearrange": "to_batch"}]}, classes=3
        ),
    )
    x = jax.random.normal(jax.random.key(1), (2, 16, 16, 3))
    variables = whole.init(jax.random.key(0), x, train=False)
    wanted = whole.apply(variables, x, train=False)
    np.testing.assert_allclose(split.apply(variables, x, train=False), wanted, 1e-4)
