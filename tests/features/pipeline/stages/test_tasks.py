"""Tasks of stages: what lives where, and what is sent."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.features.pipeline.build import choose_cuts, find_step
from meshwright.features.pipeline.stages import lowered_step
from meshwright.features.pipeline.stages.passes import find_places
from meshwright.features.pipeline.stages.stage_part import PartKind, StagePart, part_at
from meshwright.features.pipeline.stages.staged_step import stage_programs
from meshwright.program.capture import capture
from tests.features.pipeline.models import (
    BATCH,
    PARAMS,
    layer,
    loss_of,
    train_step,
    unmarked_step,
)
from tests.features.pipeline.stages.verifier import verify_tasks


def staged(fn=unmarked_step, mesh=None, tactics=(), **options):
    options = {"microbatches": 4, **options}
    return mw.pipeline(fn, mesh or {"stage": 4}, tactics, **options).stage(
        PARAMS, BATCH
    )


@pytest.mark.parametrize(
    ("mesh", "tactics"),
    [
        ({"stage": 4}, []),
        ({"stage": 2, "data": 2}, [mw.data_parallel("data"), mw.fsdp("data")]),
        (
            {"stage": 2, "data": 2, "model": 2},
            [mw.data_parallel("data"), mw.megatron("model"), mw.zero(3, "data")],
        ),
    ],
)
def test_every_value_is_there_when_a_task_reads_it(mesh, tactics):
    step = staged(mesh=mesh, tactics=tactics)
    steps, tasks = zip(*stage_programs(step), strict=True)
    verify_tasks(step.staged, steps, tasks)


def test_the_backward_pass_of_a_stage_reads_its_weights_where_its_forward_pass_does():
    step = staged()
    for lowered, tasks in stage_programs(step):
        inputs = lowered.lowered.program.inputs
        weights = {
            v for v in tasks.forward.inputs if v in inputs and v.shape == (16, 32)
        }
        again = {
            v for v in tasks.backward.inputs if v in inputs and v.shape == (16, 32)
        }
        assert again <= weights


def test_a_tied_embedding_is_summed_once_and_not_for_every_microbatch():
    step = staged(train_step, {"stage": 2})
    sends = stage_programs(step)[0][0].sends.values()
    of_embedding = [s for s in sends if s.value.shape == (24, 16)]
    assert [s.part.kind for s in of_embedding] == [PartKind.UPDATE]


def test_activations_go_forward_and_cotangents_back_and_nothing_else():
    step = staged(train_step, {"stage": 2})
    sends = stage_programs(step)[0][0].sends.values()
    passes = [s for s in sends if s.part.kind is not PartKind.UPDATE]
    forward = {s.value.shape for s in passes if s.part.kind is PartKind.FORWARD}
    assert forward == {(4, 4, 16)}
    assert [s.value.shape for s in passes if s.to == 0] == [(4, 4, 16)]


def test_no_op_comes_before_what_it_reads():
    options = mw.pipeline(unmarked_step, {"stage": 4}, microbatches=4).options
    step = find_step(capture(unmarked_step, (PARAMS, BATCH)), options)
    place = find_places(step, choose_cuts(step, options))
    producer = {value: op for op in step.body for value in op.results}
    for op in step.body:
        for atom in op.operands:
            if atom in producer:
                assert place[producer[atom]] <= place[op]
    assert set(place.values()) == set(range(8))


def test_the_gradient_halves_are_the_whole_backward_pass():
    for _, tasks in stage_programs(staged()):
        halves = len(tasks.input_gradient.program.ops) + len(
            tasks.weight_gradient.program.ops
        )
        assert halves == len(tasks.backward.program.ops)
        assert not tasks.input_gradient.totals or tasks.weight_gradient.totals


def test_a_place_in_the_chain_names_its_part():
    for place in range(8):
        assert part_at(place, 4).place(4) == place
    assert str(StagePart(PartKind.BACKWARD, 1)) == "backward of stage 1"


def narrow_loss(params, batch):
    """A loss with products in bfloat16, whose layers are computed again."""
    narrow = jax.tree.map(lambda w: w.astype("bfloat16"), params)
    h = narrow["embedding"][batch["x"]]
    for i, weights in enumerate(narrow["layers"]):
        h = mw.stage(h, "second") if i == 2 else h
        h = jax.checkpoint(layer)(h, weights)
    return jnp.mean(jnp.square(h.astype("float32")))


@pytest.mark.parametrize("loss", [loss_of, narrow_loss])
def test_gradients_are_reduced_over_devices_once_after_all_microbatches(loss):
    step = staged(
        partial(train_step, loss=loss),
        {"stage": 2, "data": 2},
        [mw.data_parallel("data")],
    )
    for _, tasks in stage_programs(step):
        inside = {op.kind for op in tasks.backward.program.walk()}
        assert "dot_general" in inside
        assert "all_reduce" not in inside
        after = [op.kind for task in tasks.updates.values() for op in task.program.ops]
        assert "all_reduce" in after


def test_accumulators_that_an_axis_shards_are_reduced_in_every_microbatch():
    tactics = [mw.data_parallel("data"), mw.zero(3, "data", min_elements=0)]
    step = staged(
        partial(train_step, loss=narrow_loss), {"stage": 2, "data": 2}, tactics
    )
    inside = {
        op.kind for _, t in stage_programs(step) for op in t.backward.program.walk()
    }
    assert "reduce_scatter" in inside


def test_weights_that_are_stored_in_parts_are_gathered_in_each_pass():
    tactics = [mw.data_parallel("data"), mw.zero(3, "data", min_elements=0)]
    step = staged(train_step, {"stage": 2, "data": 2}, tactics)
    for _, tasks in stage_programs(step):
        kinds = [
            {op.kind for op in task.program.ops}
            for task in (tasks.before, tasks.forward, tasks.backward)
        ]
        assert ["all_gather" in each for each in kinds] == [False, True, True]
        kept = {*tasks.forward.outputs} & {*tasks.backward.inputs}
        assert not kept & {v for op in tasks.before.program.ops for v in op.results}


def test_layers_that_are_computed_again_are_so_in_the_backward_pass_of_their_stage():
    step = staged(partial(train_step, loss=narrow_loss), {"stage": 2})
    counts = [
        [
            sum(op.kind == "tanh" for op in task.program.walk())
            for task in (t.forward, t.backward)
        ]
        for _, t in stage_programs(step)
    ]
    assert counts == [[2, 2], [2, 2]]


def test_devices_with_copies_of_a_value_send_a_part_each(monkeypatch):
    monkeypatch.setattr(lowered_step, "LEAST_PARTED", 1)
    mesh = {"stage": 2, "data": 2, "model": 2}
    tactics = [mw.data_parallel("data"), mw.megatron("model")]
    step = mw.pipeline(train_step, mesh, tactics, microbatches=4)
    (first, _), _ = stage_programs(step.stage(PARAMS, BATCH))
    forward = next(s for s in first.sends.values() if s.part.kind is PartKind.FORWARD)
    rows = BATCH["x"].shape[0] // 4 // 2  # by microbatches and along data
    assert forward.value.shape == (rows // 2, 4, 16)
    assert step.check(PARAMS, BATCH).ok


UNEQUAL = [{"data": 2, "model": 2}, {"data": 1, "model": 4}]


def test_submeshes_of_other_sizes_receive_what_is_sent_in_parts(monkeypatch):
    monkeypatch.setattr(lowered_step, "LEAST_PARTED", 1)
    tactics = [mw.data_parallel("data"), mw.megatron("model")]
    with mw.cluster("inline") as cluster:
        for sizes in (UNEQUAL, UNEQUAL[::-1]):
            slices = [cluster.slice(each) for each in sizes]
            for places in (sizes, slices):
                step = mw.pipeline(train_step, places, tactics, microbatches=4)
                assert step.check(PARAMS, BATCH).ok
            for part in slices:
                part.release()
            # Each of the four devices sends its own quarter of every microbatch.
            for lowered, _ in stage_programs(step.stage(PARAMS, BATCH)):
                varying = [
                    lowered.shardings[send.value]
                    for send in lowered.sends.values()
                    if send.value in lowered.varying
                ]
                assert {frozenset(cut.axes) for cut in varying if any(cut.dims)} == {
                    frozenset({"data", "model"})
                }
