"""Latency hiding: gathers of weights that start early, a few at a time."""

from itertools import pairwise

import jax
import jax.numpy as jnp

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.machine.placement import place_mesh
from meshwright.predict.compilers.gpu.gpu_passes import GPU
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.compilers.xla.latency_hiding import EarlyStarts
from meshwright.predict.simulate.timeline import COMPUTE, Setting, timeline_of
from tests.predict.compilers.compiled import fused, fusions_of

LAYERS, WIDTH = 6, 2048


def lowered():
    def step(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    weights = [jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.bfloat16)] * LAYERS
    x = jax.ShapeDtypeStruct((65536, WIDTH), jnp.bfloat16)
    tactics = [mw.data_parallel("data", "x"), mw.shard({"weights.*": 0}, axis="data")]
    return mw.partition(step, {"data": 8}, tactics).decide(weights, x).lowered


MADE = lowered()


def timeline(is_async):
    placement = place_mesh(MADE.mesh, load_machine("tpu-v5e", 8))
    return timeline_of(fused(MADE.program).kernels, Setting(placement, is_async))


def test_computation_waits_for_the_first_gather_alone():
    spans = timeline(TPU.async_collectives).spans
    gathers = [s for s in spans if s.fusion.kind is FusionKind.COLLECTIVE]
    assert len(gathers) == LAYERS
    computing = [s for s in spans if s.stream == COMPUTE]
    waits = [after.start_s - before.end_s for before, after in pairwise(computing)]
    assert computing[0].start_s == gathers[0].end_s
    assert max(waits) == 0


def test_each_fusion_runs_once_whether_or_not_collectives_are_asynchronous():
    program = MADE.program
    fusions = fusions_of(program)
    for is_async in (frozenset(), TPU.async_collectives):
        ahead, ran = EarlyStarts(fusions, program.inputs, is_async), []
        for fusion in fusions:
            ran += ahead.next()
            ran += [fusion] if ahead.start(fusion) else []
        assert len(ran) == len(fusions)
        assert set(ran) == set(fusions)


def test_at_most_four_early_results_wait_for_their_reader():
    program = MADE.program
    ahead = EarlyStarts(fusions_of(program), program.inputs, TPU.async_collectives)
    early = []
    while chain := ahead.next():
        early.append(chain)
    assert len(early) == 4 < LAYERS


def test_a_collective_on_a_computed_operand_does_not_start_early():
    def step(x, w):
        return jnp.tanh(x @ w) @ w

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    tactics = [mw.shard({"w": 0}, axis="data"), mw.shard({"x": 1}, axis="data")]
    made = mw.partition(step, {"data": 8}, tactics).decide(x, x).lowered
    fusions = fusions_of(made.program)
    ahead = EarlyStarts(fusions, made.program.inputs, GPU.async_collectives)
    early = {fusion for chain in iter(ahead.next, ()) for fusion in chain}
    made_by = {v: u for u in fusions for v in u.writes}
    assert not any(
        made_by[v].kind is FusionKind.PRODUCT
        for fusion in early
        for v in fusion.reads
        if v in made_by
    )
