"""Searches on thousands of devices: as much work as on a few, and meshes left out."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.features.pipeline.planning.pipeline_task import submesh_sizes
from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.planner.candidates.mesh_bound import (
    Exchange,
    MeshBound,
    exchanges_of,
    least_exchange_s,
)
from meshwright.planner.solve.space import Space
from meshwright.predict.links.collective import all_gather_s

LAYERS, BATCH, SEQUENCE, WIDTH = 8, 2048, 4096, 8192


def loss(weights, x):
    def layer(x, w):
        return x + jax.nn.relu(x @ w["up"]) @ w["down"], None

    y, _ = jax.lax.scan(layer, x, weights)
    return jnp.mean(jnp.square(y.astype("float32")))


def train(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


UP, DOWN = shape(LAYERS, WIDTH, 4 * WIDTH), shape(LAYERS, 4 * WIDTH, WIDTH)
ARGS = ({"up": UP, "down": DOWN}, shape(BATCH, SEQUENCE, WIDTH))


@pytest.fixture(scope="module")
def searches():
    return {
        chips: mw.autoplan(train, ARGS, machine="h100", chips=chips).search
        for chips in (64, 16_384)
    }


def test_a_search_does_not_do_more_work_on_more_devices(searches):
    few, many = searches[64], searches[16_384]
    assert many.work_s <= 1.5 * few.work_s
    assert many.num_meshes <= few.num_meshes + 2
    assert len(many.candidates) <= 60


def test_meshes_that_only_offer_too_much_tensor_parallelism_are_left_out(searches):
    (note,) = searches[16_384].notes
    assert "exchange activations there along too many devices" in note
    assert "data=64,model=256" in note
    tried = {c.mesh.sizes[-1][1] for c in searches[16_384].candidates}
    assert tried.isdisjoint({256, 512, 1024, 2048, 4096, 8192})


def test_a_pipeline_has_as_many_sizes_of_submeshes_on_more_devices():
    sizes = [submesh_sizes(load_machine("h100", None, n)) for n in (64, 16_384)]
    assert sizes[0] == (1, 2, 4, 8, 16, 32, 64)
    assert sizes[1] == tuple(256 * size for size in sizes[0])


def test_products_exchange_the_smaller_of_operand_and_result():
    captured = mw.partition(loss, {"data": 2}).capture(*ARGS)
    space = Space(captured, load_machine("h100", None, 16))
    row_bytes = 2 * BATCH * SEQUENCE
    # Forward alone: what the first product reads, and what the second one makes.
    assert exchanges_of(space.captured, space.graph) == (
        Exchange(row_bytes * WIDTH, LAYERS, 1),
        Exchange(row_bytes * WIDTH, LAYERS, 1),
    )


def test_the_bound_is_half_of_the_gathers_along_the_cheapest_axis():
    machine, exchange = load_machine("h100", None, 64), Exchange(1 << 30, 10, 1)
    mesh, twin = mw.Mesh({"data": 16, "model": 4}), mw.Mesh({"data": 4, "model": 16})
    links = place_mesh(twin, machine).of(("data",))  # four devices of a node
    least_s = 0.5 * 10 * all_gather_s((1 << 30) / 16, links)
    assert least_exchange_s([exchange], mesh, machine, ()) == pytest.approx(least_s)
    # An earlier mesh offers the axis of 4, so that only the other one is left.
    assert least_exchange_s([exchange], twin, machine, (mesh,)) > 4 * least_s
    experts = Exchange(1 << 30, 10, 32)
    assert least_exchange_s([experts], mesh, machine, ()) == 0
    assert least_exchange_s([exchange], mw.Mesh({"data": 64}), machine, ()) == 0


def test_the_note_names_at_most_four_meshes():
    bound = MeshBound(None, (), lambda work, units: None)
    assert bound.note == ""
    bound.left_out = {mw.Mesh({"data": 2, "model": 2 << n}): 1.5 + n for n in range(6)}
    assert bound.note.startswith("6 meshes left out")
    assert bound.note.endswith(
        "at least 1.5 s a step: "
        + "; ".join([f"data=2,model={2 << n}" for n in range(4)] + ["2 more"])
    )
