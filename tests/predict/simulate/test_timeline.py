"""Timelines: closed forms of single fusions, and laws of any timeline."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.simulate.timeline import COMPUTE, LINKS, Setting, timeline_of
from tests.predict.compilers.compiled import fused
from tests.program.ops.catalogue import pallas

MESH = {"data": 4, "model": 2}
OVERLAPPED = frozenset({"all_gather", "all_reduce", "reduce_scatter"})


def lowered(layers=3, width=256):
    def step(params, x):
        def loss(params):
            y = x
            for up, down in params:
                y = y + jnp.tanh(y @ up) @ down
            return jnp.mean(y**2)

        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - g, params, grads)

    shapes = [
        (
            jax.ShapeDtypeStruct((width, 4 * width), jnp.float32),
            jax.ShapeDtypeStruct((4 * width, width), jnp.float32),
        )
    ] * layers
    x = jax.ShapeDtypeStruct((512, width), jnp.float32)
    tactics = [mw.data_parallel("data", "x"), mw.megatron("model")]
    return mw.partition(step, MESH, tactics).decide(shapes, x).lowered


LOWERED = lowered()


def run(machine="tpu-v5e", is_async=OVERLAPPED, made=LOWERED):
    placement = place_mesh(made.mesh, load_machine(machine, 8))
    return timeline_of(
        fused(made.program).kernels,
        Setting(placement, is_async),
    )


def work_s(timeline):
    return sum(span.end_s - span.start_s for span in timeline.spans)


@pytest.mark.parametrize("is_async", [frozenset(), OVERLAPPED])
def test_a_step_takes_at_least_its_busiest_stream_and_at_most_all_its_work(is_async):
    timeline = run(is_async=is_async)
    busiest = max(timeline.busy_s(COMPUTE), timeline.busy_s(LINKS))
    assert busiest <= timeline.end_s * (1 + 1e-9)
    assert timeline.end_s <= work_s(timeline) * (1 + 1e-9)


def test_without_overlap_a_step_takes_all_its_work():
    timeline = run(is_async=frozenset())
    assert timeline.end_s == pytest.approx(work_s(timeline))


def test_overlap_never_makes_a_step_longer():
    assert run().end_s <= run(is_async=frozenset()).end_s


def test_the_same_program_gives_the_same_timeline():
    one, other = run(), run()
    assert [(s.start_s, s.end_s) for s in one.spans] == [
        (s.start_s, s.end_s) for s in other.spans
    ]


def test_no_fusion_starts_before_its_operands_are_ready():
    ready_s = {}
    for span in run().spans:
        for value in span.fusion.reads:
            assert ready_s.get(value, 0.0) <= span.start_s
        ready_s |= dict.fromkeys(span.fusion.writes, span.end_s)


def test_spans_of_a_stream_do_not_overlap():
    for stream in (COMPUTE, LINKS):
        spans = [s for s in run().spans if s.stream == stream]
        for before, after in pairwise(spans):
            assert before.end_s <= after.start_s


def test_a_faster_chip_is_never_slower():
    assert run("tpu-v6e").end_s <= run("tpu-v5e").end_s


@given(st.integers(1, 6))
def test_a_loop_takes_its_body_times_its_trip_count(length):
    def fn(x):
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, length=length)[0]

    x = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    made = mw.partition(fn, {"data": 8}, []).decide(x).lowered
    placement = place_mesh(made.mesh, load_machine("tpu-v5e", 8))
    timeline = timeline_of(
        fused(made.program).kernels,
        Setting(placement, frozenset()),
    )
    (span,) = timeline.spans
    assert span.inner is not None
    assert span.end_s == pytest.approx(length * span.inner.end_s)


def test_a_pallas_kernel_moves_only_its_blocks():
    """A block that all grid steps share moves once, one that alternates at each step."""
    example = pallas.EXAMPLES[0]
    made = mw.partition(example.fn, MESH).decide(*example.args).lowered
    spans = run(made=made).spans
    (kernel,) = (s for s in spans if s.fusion.root.kind == "pallas_call")
    assert kernel.num_bytes == 4 * (4 * 8 * 16 + 8 * 16 * 32 + 8 * 8 * 32)
