import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from zoo import resnet

SMALL = resnet.Config((3,), batch=8, channels=4, size=16, classes=8, scan=True)


def small():
    state = jax.jit(partial(resnet.start, SMALL))(jax.random.key(0))
    return state, next(resnet.batches(SMALL, seed=0))


def shapes_of(name):
    _, (state, _) = resnet.targets[name]()
    return state


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet_50", 25_557_032), ("resnet_101", 44_549_160), ("resnet_152", 60_192_808)],
)
def test_parameters_are_those_of_the_released_networks(name, count):
    assert resnet.num_weights(resnet.SIZES[name]) == count


def test_multiply_adds_of_a_looped_network_are_those_of_the_unrolled_one():
    unrolled = resnet.SIZES["resnet_50"]
    looped = dataclasses.replace(unrolled, scan=True)
    assert resnet.num_macs(looped) == resnet.num_macs(unrolled)
    assert resnet.num_weights(looped) == resnet.num_weights(unrolled)


def test_resnet_50_is_unrolled_and_has_sixteen_blocks():
    params = shapes_of("resnet_50").params
    blocks = [name for name in params if name.startswith("stage_")]
    assert len(blocks) == 16
    assert all(x["conv_2"]["kernel"].ndim == 4 for x in map(params.get, blocks))


def test_only_the_middle_of_alpas_blocks_is_wide():
    block = shapes_of("wrn_6_8b").params["stage_3_block_1"]
    assert block["conv_1"]["kernel"].shape == (1, 1, 4 * 2560, 2560)
    assert block["conv_2"]["kernel"].shape == (3, 3, 2560, 16 * 2560)
    assert block["conv_3"]["kernel"].shape == (1, 1, 16 * 2560, 4 * 2560)


def test_recomputed_blocks_take_the_same_step():
    state, batch = small()
    again = dataclasses.replace(SMALL, remat=True)
    results = [
        jax.jit(resnet.train_step_for(config))(state, batch)
        for config in (SMALL, again)
    ]
    for wanted, found in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 100}, "100 pixels cannot be halved 3 times, twice before and once"),
        ({"stages": (3, 0)}, "stages is at least 1, not 0"),
        ({"stages": ()}, "a network has one stage or more"),
        ({"width": 0}, "width is at least 1, not 0"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        resnet.Config(**{"stages": (2, 2), "batch": 8, "size": 64, **changes})


def unstacked(params):
    """The variables of a looped network under the names of the unrolled one."""
    blocks = params.pop("stage_0_blocks")
    for i in range(2):
        params[f"stage_0_block_{i + 1}"] = jax.tree.map(lambda x, i=i: x[i], blocks)
    return params


def test_a_looped_network_is_the_unrolled_one():
    unrolled = dataclasses.replace(SMALL, scan=False)
    state, batch = small()
    moved = jax.tree.map(lambda x: x + 0.1, (state.params, state.stats))
    looped = jax.jit(partial(resnet.scores, SMALL))(*moved, batch["image"])
    same = jax.jit(partial(resnet.scores, unrolled))(
        *map(unstacked, map(dict, moved)), batch["image"]
    )
    np.testing.assert_allclose(looped, same, rtol=1e-4, atol=1e-4)


def test_a_new_block_adds_nothing_to_what_goes_around():
    block = resnet.Block(4, width=2, stride=1, is_training=True)
    x = jax.random.uniform(jax.random.key(0), (2, 8, 8, 16))
    y, _ = jax.jit(block.init_with_output)(jax.random.key(1), x)
    np.testing.assert_array_equal(y, x)


def test_a_step_moves_the_running_moments_a_tenth_of_the_way_to_the_batch():
    state, batch = small()
    kernel = state.params["conv"]["kernel"]
    seen = jax.lax.conv_general_dilated(
        batch["image"], kernel, (2, 2), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    after, _ = jax.jit(resnet.train_step_for(SMALL))(state, batch)
    moments = after.stats["norm"]
    np.testing.assert_allclose(
        moments["mean"], 0.1 * jnp.mean(seen, axis=(0, 1, 2)), rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(
        moments["var"], 0.9 + 0.1 * jnp.var(seen, axis=(0, 1, 2)), rtol=1e-3
    )


def test_the_wide_middle_is_cut_and_closed_by_one_sum_forward():
    """A block without a way around: one sum for its output, one for a gradient."""
    block = resnet.Block(8, width=2, stride=1, is_training=True)
    x = jax.ShapeDtypeStruct((4, 8, 8, 32), jnp.float32)
    variables = jax.eval_shape(block.init, jax.random.key(0), x)
    params, stats = variables["params"], variables["batch_stats"]

    def forward(params, stats, x):
        given = {"params": params, "batch_stats": stats}
        return block.apply(given, x, mutable=["batch_stats"])[0]

    mesh = {"model": 2}
    cut = mw.shard({"params.conv_2.kernel": -1}, axis="model")
    plan = mw.partition(forward, mesh, [cut]).plan(params, stats, x)
    assert plan.counts["all_reduce"] == 1
    assert sum(plan.counts.values()) == 1


@pytest.mark.slow
def test_the_small_network_learns_the_images():
    losses = [row["loss"] for row in resnet.train(seed=0, steps=60)]
    assert losses[0] > 1.9
    assert np.mean(losses[-10:]) < 1.1
