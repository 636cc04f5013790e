"""Prices on devices with few images, where space-to-batch cuts images in space."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.machine import Mesh, load_machine
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.expert_plans import ExpertPlans
from meshwright.planner.prices.uniform_partition import credit_original_ops, price_ops
from meshwright.planner.solve.space import Space
from meshwright.predict.compilers.model.compilation import Stage, start_compilation
from meshwright.predict.compilers.model.fusion import SPACE_TO_BATCH_COPY
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.estimate import estimate
from meshwright.program.ops import Trait, has_trait
from tests.planner.programs import shape

DEVICES, SIZE, FEATURES = 16, 64, 128


def conv(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def step(weights, images):
    """A training step of convolutions, each followed by a gate per image."""

    def loss(weights):
        y = images
        for w in weights:
            y = jax.nn.silu(conv(y, w))
            y = y * jax.nn.sigmoid(jnp.mean(y, axis=(1, 2), keepdims=True))
        return jnp.mean(y**2)

    gradients = jax.grad(loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def space_with(images, machine="tpu-v5e"):
    weights = [shape(3, 3, FEATURES, FEATURES)] * 4
    args = weights, shape(images, SIZE, SIZE, FEATURES)
    captured = mw.partition(step, {"data": DEVICES}).capture(*args)
    return Space(captured, load_machine(machine, None, DEVICES))


MESH = Mesh({"data": DEVICES})


def priced_and_simulated(space):
    """Seconds of a data-parallel step, by the prices and simulated."""
    priced = space.price(MESH)
    (plan,) = (
        p for p in ExpertPlans(space, []).on(MESH, priced) if p.name == "data parallel"
    )
    decided = decide(space.captured, MESH, plan.tactics, Gather.SHARED)
    return plan.seconds, estimate(decided, space.machine).step_time_s


def test_prices_of_small_batches_are_near_the_simulation_and_others_are_not():
    space = space_with(4 * DEVICES)
    priced_s, simulated = priced_and_simulated(space)
    assert priced_s == pytest.approx(simulated, rel=0.12)
    space.op_prices = replace(space.op_prices, small_batch=None)
    priced_s, _ = priced_and_simulated(space)
    assert priced_s < 0.8 * simulated


def test_a_strategy_is_priced_by_the_images_that_it_leaves_on_a_device():
    """Only strategies that leave few images, such as a split along both axes, differ."""
    space = space_with(4 * DEVICES)
    mesh = Mesh({"data": DEVICES // 2, "model": 2})
    prices: list[dict[object, float]] = []
    for stores in (space.op_prices, replace(space.op_prices, small_batch=None)):
        space.op_prices = stores
        model = space.price(mesh).model
        number = next(
            n
            for n, group in enumerate(model.reduced_graph.classes)
            if group.node.label == "logistic" and len(group.node.sizes) == 4
        )
        axes = [choice.axes for choice in model.choices[number]]
        prices.append(dict(zip(axes, model.costs[number], strict=True)))
    few, many = prices
    assert many.keys() == few.keys()
    changed = {axes for axes in many if few[axes] != many[axes]}
    assert changed == {((0, ("data", "model")),), ((0, ("model", "data")),)}


@pytest.mark.parametrize(("images", "machine"), [(8, "tpu-v5e"), (4, "h100")])
def test_there_are_no_small_batch_prices_without_space_to_batch(images, machine):
    assert space_with(images * DEVICES, machine).op_prices.small_batch is None


def test_all_ops_on_images_have_small_batch_prices():
    space = space_with(4 * DEVICES)
    few = space.op_prices.small_batch
    program = space.captured.program
    convs = [op for op in program.walk() if op.kind == "conv_general_dilated"]
    assert len(convs) > 8
    assert few.max_images == 7
    for op in program.walk():
        is_image = [v.shape == (4 * DEVICES, SIZE, SIZE, FEATURES) for v in op.operands]
        if op.kind in {"conv_general_dilated", "mul", "logistic"} and any(is_image):
            assert op in few.images, op


def flattened(weights, images):
    """The convolutions, then a product that reads each image as one row."""
    y = jax.nn.relu(conv(jax.nn.relu(conv(images, weights[0])), weights[1]))
    return y.reshape(y.shape[0], -1) @ jnp.ones((y.size // y.shape[0], 16))


def scanned(weights, images):
    """Two convolutions, twice, in a loop."""

    def turn(y, _):
        return jax.nn.relu(conv(jax.nn.relu(conv(y, weights[0])), weights[1])), None

    return jax.lax.scan(turn, images, None, length=2)[0]


@pytest.mark.parametrize("fn", [step, flattened, scanned])
def test_seconds_of_copies_are_credited_to_ops_that_have_prices(fn):
    args = [shape(3, 3, FEATURES, FEATURES)] * 4, shape(64, 60, 60, FEATURES)
    program = mw.partition(fn, {"data": DEVICES}).capture(*args).program
    machine = load_machine("tpu-v5e", None, DEVICES)
    begun = start_compilation(program, TPU, machine.chip.tile, DEVICES)
    split = begun.after(Stage.LAYOUTS)
    changed, origins = split.program, split.origins
    assert any(op.kind == SPACE_TO_BATCH_COPY for op in changed.walk())
    prices = price_ops(changed, machine, DEVICES)
    priced = {
        op for op in program.walk() if not has_trait(op.kind, Trait.ALIASES_OPERAND)
    }
    credited = credit_original_ops(prices, changed, origins, priced)
    for each in (credited.matrix, credited.vector_s, credited.launch_s):
        assert not any(op.kind == SPACE_TO_BATCH_COPY for op in each)
    assert sum(credited.launch_s.values()) == pytest.approx(
        sum(prices.launch_s.values())
    )
    assert seconds_of(credited, priced) == pytest.approx(
        seconds_of(
            prices,
            {
                op
                for op in changed.walk()
                if not has_trait(op.kind, Trait.ALIASES_OPERAND)
            },
        )
    )


def seconds_of(prices, ops):
    """Seconds of all accesses of some ops."""
    return sum(
        access.seconds for op in ops for access in prices.accesses.get(op, {}).values()
    )
