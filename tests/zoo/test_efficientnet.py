"""EfficientNet and EfficientNet-X: their sizes, their blocks, and that they learn."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import efficientnet as net
from zoo.efficientnet_sizes import EDGE_STAGES, SIZES, STAGES, TINY, X_STAGES, Config
from zoo.images import made_batches
from zoo.mbconv import (
    Block,
    Blocks,
    MBConv,
    Normalized,
    SpaceToDepth,
    Stage,
    scale_channels,
)
from zoo.workload import choose

LACS = {
    "x_tpu": (
        (10.4, 11.5, 15.8, 34.0, 59.9, 137, 199),
        (1.59, 2.70, 4.21, 10.9, 24.4, 53.8, 85.5),
    ),
    "x_gpu": (
        (10.4, 10.8, 16.8, 37.1, 72.1, 122, 197),
        (1.59, 2.53, 4.26, 10.0, 24.5, 46.8, 84.5),
    ),
}
"""Millions of parameters and thousands of millions of MACs of B1 to B7, counted from the
released definitions by other means."""

ROWS = [
    pytest.param(f"{family}_b{i}", millions, giga, id=f"{family}_b{i}")
    for family, columns in LACS.items()
    for i, (millions, giga) in enumerate(zip(*columns, strict=True), start=1)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions", "giga"), ROWS)
def test_nets_scaled_for_latency_have_the_counts_of_their_tables(name, millions, giga):
    config = SIZES[name]
    assert net.num_weights(config) == pytest.approx(millions * 1e6, rel=0.02)
    assert net.num_macs(config) == pytest.approx(giga * 1e9, rel=0.05)


def test_b0_has_the_parameters_of_the_released_net_to_the_last():
    """5,288,548 is also what Keras and PyTorch print."""
    assert net.num_weights(SIZES["b0"]) == 5_288_548


def test_every_published_size_is_offered():
    plain = {f"{prefix}b{i}" for prefix in ("", "x_") for i in range(8)}
    scaled = {f"{prefix}b{i}" for prefix in ("x_tpu_", "x_gpu_") for i in range(1, 8)}
    edge = {"edge_s", "edge_m", "edge_l"}
    assert set(net.targets) == set(SIZES) == plain | scaled | edge
    assert set(net.inference) == {"tiny", *SIZES}
    assert len(net.workload.full) == len(SIZES) == 33


def test_nets_for_edge_tpus_have_the_parameters_of_the_released_nets():
    """5,438,392, 6,899,496 and 10,589,712 are what PyTorch prints (timm)."""
    counted = [net.num_weights(SIZES[f"edge_{size}"]) for size in "sml"]
    assert counted == [5_438_392, 6_899_496, 10_589_712]
    blocks = [stage.blocks(1.0, 1.0, 0.0) for stage in EDGE_STAGES]
    assert {block.squeeze for stage in blocks for block in stage} == {0}
    assert blocks[0][0].inside == 96  # of 24 channels; 32 come in


def test_a_forward_pass_takes_any_batch_and_dtype():
    forward, args = net.inference["x_b0"](batch=3, dtype="float16")
    assert args[-1].shape == (3, 224, 224, 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(args)} == {jnp.dtype("float16")}
    scores = jax.eval_shape(forward, *args)
    assert (scores.shape, scores.dtype) == ((3, 1000), jnp.float16)


def test_channels_are_multiples_of_eight_and_lose_at_most_a_tenth():
    for channels in range(8, 400):
        scaled = scale_channels(channels, 1.1)
        assert scaled % 8 == 0
        assert scaled >= 0.9 * 1.1 * channels
        assert abs(scaled - 1.1 * channels) <= 8


def test_space_to_depth_begins_with_four_times_the_channels_and_half_the_kernel():
    begins, ends = (stage.blocks(1.0, 1.0, 1.0) for stage in X_STAGES[:2])
    (first,) = begins
    assert (first.into_depth, first.kernel, first.stride) == (128, 2, 1)
    assert (first.inside, first.outputs, first.squeeze) == (128, 64, 32)
    assert (ends[0].stride, ends[0].inside, ends[0].outputs) == (1, 96, 24)
    assert (ends[1].inside, ends[1].squeeze) == (144, 24)


def test_a_block_in_depth_is_repeated_without_the_convolution_that_leads_there():
    first, *others = X_STAGES[0].blocks(1.0, 3.1, 0.25)
    assert len(others) == 3
    assert (first.into_depth, first.squeeze) == (128, 8)
    assert {(b.into_depth, b.inside, b.squeeze) for b in others} == {(0, 64, 16)}


def test_only_the_fused_stages_of_efficientnet_x_are_swished():
    fused = [stage.is_fused for stage in X_STAGES]
    assert fused == [False, True, True, False, False, False, False]
    assert [stage.activation == "silu" for stage in X_STAGES] == fused
    assert {stage.activation for stage in STAGES} == {"silu"}


# -- blocks ------------------------------------------------------------------------


def block_of(stage, squeeze=0.25):
    return stage.blocks(1.0, 1.0, squeeze)[0]


def run_block(block, images, survival, seed=0):
    module = MBConv(block, momentum=0.9)
    variables = jax.jit(partial(module.init, train=False))(
        jax.random.key(0), images, survival
    )

    def run(variables, key):
        return module.apply(
            variables,
            images,
            survival,
            train=True,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )[0]

    return variables, jax.jit(run)(variables, jax.random.key(seed))


@pytest.fixture
def images():
    return jax.random.normal(jax.random.key(7), (64, 4, 4, 8))


def test_a_block_that_is_skipped_leaves_its_image_as_it_is(images):
    block = block_of(Stage(1, 3, 1, 2, 8, 8))
    _, alive = run_block(block, images, 1.0)
    _, some = run_block(block, images, 0.5)
    is_same = np.isclose(some, images).all(axis=(1, 2, 3))
    assert 16 < is_same.sum() < 48
    doubled = images + 2 * (alive - images)
    np.testing.assert_allclose(some[~is_same], doubled[~is_same], rtol=1e-3, atol=1e-4)


def test_a_fused_block_has_one_convolution_less(images):
    plain = Stage(1, 3, 1, 2, 8, 8)
    shapes = {}
    for stage in (plain, replace(plain, is_fused=True)):
        module = MBConv(block_of(stage), momentum=0.9)
        init = partial(module.init, train=False)
        variables = jax.eval_shape(init, jax.random.key(0), images, 1.0)
        shapes[stage.is_fused] = {
            name: part["conv"]["kernel"].shape
            for name, part in variables["params"].items()
            if "conv" in part
        }
    project = {"project": (1, 1, 16, 8)}
    assert shapes[True] == {"expand": (3, 3, 8, 16)} | project
    assert shapes[False] == (
        {"expand": (1, 1, 8, 16), "depthwise": (3, 3, 1, 16)} | project
    )


def test_a_scan_over_equal_blocks_is_the_blocks_one_after_the_other(images):
    block = Block(3, 1, 16, 8, 2, "silu", is_widened=True, is_fused=False)
    stage = Blocks((block,) * 3, momentum=0.9)
    survival = np.ones(3, np.float32)
    init = jax.jit(partial(stage.init, train=False))
    variables = init(jax.random.key(0), images, survival)
    apply = jax.jit(partial(stage.apply, train=False))
    wanted, one = images, MBConv(block, momentum=0.9)
    parts = [jax.tree.map(lambda x: x, variables)]
    firsts = {kind: tree["first"] for kind, tree in parts[0].items()}
    rests = {kind: tree["rest"] for kind, tree in parts[0].items()}
    each = jax.jit(partial(one.apply, train=False))
    wanted = each(firsts, wanted, 1.0)
    for i in range(2):
        wanted = each(jax.tree.map(lambda x, i=i: x[i], rests), wanted, 1.0)
    got = apply(variables, images, survival)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_batch_norm_keeps_running_statistics_and_judges_by_them():
    module = Normalized(8, 1, momentum=0.5)
    images = 3 + jax.random.normal(jax.random.key(0), (32, 4, 4, 8))
    start = module.init(jax.random.key(1), images, train=False)
    _, told = module.apply(start, images, train=True, mutable=["batch_stats"])
    raw = jnp.einsum("bhwc,cd->bhwd", images, start["params"]["conv"]["kernel"][0, 0])
    norm = told["batch_stats"]["norm"]
    np.testing.assert_allclose(norm["mean"], 0.5 * raw.mean((0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(
        norm["var"], 0.5 + 0.5 * raw.var(axis=(0, 1, 2)), rtol=1e-3
    )
    alone = module.apply({**start, **told}, images[:1], train=False)
    among = module.apply({**start, **told}, images, train=False)
    np.testing.assert_allclose(alone, among[:1], rtol=1e-4, atol=1e-5)


# -- training ----------------------------------------------------------------------


def test_a_step_keeps_the_shapes_of_the_state():
    state, batch = net.start_shapes(TINY), next(made_batches(8, 32, 8, seed=0))
    step = net.train_step_for(TINY)
    after, loss = jax.eval_shape(step, state, {**batch, "key": jax.random.key(0)})
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    assert loss.shape == ()


def test_full_sizes_take_the_images_of_their_paper():
    _, (_, batch) = net.targets["b4"]()
    assert batch["image"].shape == (128, 380, 380, 3)


def test_weight_decay_leaves_norms_and_biases_alone():
    params = net.start_shapes(TINY).params
    ones = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), params)
    zeros = jax.tree.map(np.zeros_like, ones)
    optimizer = net.optimizer_of(TINY)

    @jax.jit
    def changed():
        updates, _ = optimizer.update(zeros, optimizer.init(ones), ones)
        return jax.tree.map(lambda update: jnp.any(update != 0), updates)

    for path, is_changed in jax.tree_util.tree_leaves_with_path(changed()):
        assert bool(is_changed) == (path[-1].key == "kernel"), path


def test_the_rate_is_three_percent_less_after_every_decay():
    """A gradient of one for ever: RMSProp's first update is its rate."""
    params = {"kernel": jnp.zeros(1), "bias": jnp.zeros(1)}
    optimizer = net.optimizer_of(replace(TINY, rate=0.1, decay_steps=1))
    state = optimizer.init(params)
    ones = jax.tree.map(jnp.ones_like, params)
    before, sizes = 0.0, []
    for _ in range(3):
        updates, state = optimizer.update(ones, state, params)
        step = -float(updates["bias"][0])
        sizes.append(step - 0.9 * before)  # what momentum does not carry on
        before = step
    np.testing.assert_allclose(sizes, 0.1 * 0.97 ** np.arange(3), rtol=2e-3)


@pytest.mark.slow
def test_the_tiny_net_learns_and_knows_pictures_that_it_has_not_seen():
    told = list(net.train(seed=0, steps=net.workload.steps))
    assert told[0]["loss"] > 1.8
    assert np.mean([each["loss"] for each in told[-8:]]) < 1.2
    assert told[0]["error"] > 0.7
    assert np.mean([each["error"] for each in told[-8:]]) < 0.5


@pytest.mark.slow
def test_dropout_and_skipped_blocks_follow_the_key_of_the_batch():
    fn, (state, batch) = net.tiny()
    step = jax.jit(fn)
    one, same = (step(state, batch)[1] for _ in range(2))
    other = step(state, {**batch, "key": jax.random.key(9)})[1]
    assert one == same
    assert one != other


def test_each_batch_has_a_key_of_its_own():
    made = made_batches(2, 8, 4, seed=0)
    keyed = net.with_keys(made, seed=0)
    one, other = (jax.random.key_data(next(keyed)["key"]).tolist() for _ in range(2))
    assert one != other


# -- bad configurations ------------------------------------------------------------


def test_stages_whose_channels_do_not_meet_are_an_error():
    stages = (STAGES[0], replace(STAGES[1], inputs=17))
    with pytest.raises(ValueError, match="stage 1 takes 17 channels; there are 16"):
        Config(1, 1, 224, 0.2, stages)


def test_space_to_depth_that_does_not_end_is_an_error():
    with pytest.raises(ValueError, match="ends in the next; got begins, none"):
        Config(1, 1, 224, 0.2, (X_STAGES[0], STAGES[1]))
    with pytest.raises(ValueError, match="ends in the next; got none, ends"):
        Config(1, 1, 224, 0.2, (STAGES[0], X_STAGES[1]))
    with pytest.raises(ValueError, match="ends in the next; got begins"):
        Config(1, 1, 224, 0.2, X_STAGES[:1])


def test_space_to_depth_at_the_wrong_stride_is_an_error():
    with pytest.raises(ValueError, match="ends in a stage of stride 2; got 1"):
        Stage(1, 3, 1, 1, 8, 8, space_to_depth=SpaceToDepth.ENDS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"activation": "sine"}, "there is no activation 'sine'; there are gelu"),
        ({"dropout": 1.0}, r"shares in \[0, 1\]; got 1.0 and 0.9"),
        ({"survival": 0.0}, r"shares in \[0, 1\]; got 0.1 and 0.0"),
        ({"width": 0.0}, "width and depth are positive"),
    ],
)
def test_a_config_that_cannot_be_says_what_is_wrong(changed, words):
    with pytest.raises(ValueError, match=words):
        replace(TINY, **changed)


def test_an_unknown_size_names_those_there_are():
    with pytest.raises(ValueError, match="no EfficientNet 'b8'; there are b0, b1"):
        choose("b8", SIZES, "EfficientNet")
