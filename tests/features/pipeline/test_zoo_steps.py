"""Train steps of the zoo as pipelines, on 8 virtual devices."""

from dataclasses import replace

import pytest

import meshwright as mw
import zoo.gpt
import zoo.moe
import zoo.resnet
import zoo.t5
from meshwright.app.check.sample import sample_arguments

pytestmark = pytest.mark.slow

SMALL = {"d_model": 32, "d_ff": 32, "vocab": 48}
DP = mw.data_parallel("data", "batch.**")
MP = mw.megatron("model", vocabulary=False)


def gpt():
    config = replace(zoo.gpt.TINY, layers=4, heads=4, sequence=8, batch=32, **SMALL)
    return zoo.gpt.train_step, zoo.gpt.shapes(config)


def moe():
    routing = replace(zoo.moe.GSHARD, experts=4, group=16)
    config = replace(
        zoo.moe.TINY, layers=8, sequence=8, heads=4, batch=32, routing=routing, **SMALL
    )
    return zoo.moe.train_target(config)


def wrn():
    config = replace(
        zoo.resnet.TINY, stages=(1, 1), scan=False, size=16, channels=4, batch=32
    )
    return zoo.resnet.train_target(config)


def t5():
    config = replace(zoo.t5.TINY, d_head=16, inputs=16, targets=8, **SMALL)
    return zoo.t5.train_target(config)


TWO = {"stage": 2, "data": 2, "model": 2}
FOUR = {"stage": 4, "data": 2}
EXPERTS = mw.expert_parallel("model")
CASES = [
    (gpt, TWO, [DP, MP], {"microbatches": 4}),
    (gpt, FOUR, [DP], {"microbatches": 16, "schedule": "zb-h1"}),
    (gpt, {"stage": 3, "data": 2}, [DP, mw.fsdp("data")], {"stages": [40, 160]}),
    (gpt, TWO, [DP, MP], {"microbatches": 4, "schedule": "interleaved"}),
    (moe, TWO, [DP, EXPERTS], {"microbatches": 4, "schedule": "gpipe"}),
    (moe, FOUR, [DP], {"microbatches": 4}),
    (t5, TWO, [DP, MP], {"microbatches": 4, "schedule": "zb-h2"}),
    (t5, FOUR, [DP], {"microbatches": 4}),
    (wrn, {"stage": 2, "data": 4}, [DP], {"microbatches": 4}),
    (wrn, FOUR, [DP], {"microbatches": 4, "schedule": "zb-h1"}),
]


@pytest.mark.parametrize(("make", "mesh", "tactics", "options"), CASES)
def test_a_pipelined_step_equals_the_whole_one(make, mesh, tactics, options):
    fn, shapes = make()
    if make is wrn:
        options = {**options, "statistics": "microbatch"}
    step = mw.pipeline(fn, mesh, tactics, **options)
    arguments = sample_arguments(fn, shapes, seed=0)
    report = step.check(*arguments)
    assert report.ok, report
