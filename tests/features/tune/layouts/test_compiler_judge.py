"""The TPU compiler as a judge of layouts, without a TPU."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest

from meshwright.features.tune.compiler_server.server import CompilerServer, host_of
from meshwright.features.tune.layouts.compiler_judge import EstimateJudge
from meshwright.features.tune.layouts.kernel_costs import KernelCosts, same_program
from meshwright.features.tune.layouts.kernel_work import rates_of
from meshwright.features.tune.layouts.verdict import Question
from meshwright.features.tune.tune_layouts import machine_of, on_one_device, tuned_step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None, reason="needs meshwright[tpu]"
    ),
]


def looped(p, x):
    def body(h, w):
        return jnp.tanh(h @ w), None

    return jnp.sum(jax.lax.scan(body, x, p["w"])[0] ** 2)


@pytest.fixture(scope="module")
def judge():
    shape = jax.ShapeDtypeStruct
    args = {"w": shape((6, 256, 256), "bfloat16")}, shape((512, 256), "bfloat16")
    decided = on_one_device(jax.grad(looped), args)
    machine = machine_of("tpu-v5e", 1)
    with CompilerServer(host_of(machine)) as server:
        yield EstimateJudge(server, tuned_step(decided), rates_of(machine))


def test_a_screened_program_of_known_kernels_costs_what_the_compiled_one_does(judge):
    question = Question({}, {}, False)
    verdict = judge.judge(question)
    assert not verdict.error
    costs = KernelCosts()
    costs.learn(verdict.examples)
    kernels = judge.screen(question)
    assert not costs.num_unknown(kernels)
    assert costs.predict(kernels) == verdict.cost > 0
    assert {kernel.runs for kernel in kernels} == {1, 6}


def test_a_layout_of_an_argument_makes_another_program(judge):
    plain = judge.screen(Question({}, {}, False))
    moved = judge.screen(Question({}, {1: (1, 0)}, False))
    assert same_program(moved) != same_program(plain)
