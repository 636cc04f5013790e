"""Seconds and bytes of cuDNN's attention on GPUs."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw


def shape(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def attention(implementation):
    return lambda q, k, v: jax.nn.dot_product_attention(
        q, k, v, implementation=implementation, is_causal=True
    )


def plan_of(length, machine, with_gradient, implementation="cudnn"):
    """Causal attention of Llama's heads over two sequences, on one GPU."""
    q, seen = shape(2, length, 64, 128), shape(2, length, 8, 128)
    forward = attention(implementation)

    def both(q, k, v, g):
        return jax.vjp(forward, q, k, v)[1](g)

    args = (q, seen, seen)
    fn, args = (both, (*args, q)) if with_gradient else (forward, args)
    return mw.partition(fn, {"d": 1}, []).plan(*args).on(machine)


MEASURED = [
    ("h200", 2048, 0.257e-3, 0.856e-3),
    ("h200", 16384, 13.888e-3, 40.803e-3),
    ("a100-80g", 4096, 3.155e-3, 10.772e-3),
]
"""Seconds forward and backward in NVIDIA's cudnn-frontend (2026), cuDNN 9.27,
benchmark/attention_training/results/llama3.1; A100 is the PCIe card."""


@pytest.mark.parametrize(("machine", "length", "forward_s", "backward_s"), MEASURED)
def test_seconds_are_those_that_nvidia_measures(machine, length, forward_s, backward_s):
    forward = plan_of(length, machine, with_gradient=False)
    assert forward.step_time_s == pytest.approx(forward_s, rel=0.05)
    both = plan_of(length, machine, with_gradient=True)
    assert both.step_time_s == pytest.approx(forward_s + backward_s, rel=0.05)


def test_operands_that_a_call_does_not_use_take_no_time():
    q = shape(1, 128, 2, 64)
    plan = mw.partition(attention("cudnn"), {"d": 1}, []).plan(q, q, q).on("h100")
    assert plan.step_time_s == mw.machine("h100").chip.launch_s


def test_fused_attention_has_no_scores_in_memory():
    fused = plan_of(4096, "h200", with_gradient=True)
    plain = plan_of(4096, "h200", with_gradient=True, implementation="xla")
    queries = 2 * 4096 * 64 * 128 * 2
    statistics, scores = 2 * 64 * 4096 * 4, 2 * 64 * 4096 * 4096 * 2
    # Queries, output, both gradients and a quarter of each for keys and values.
    assert fused.peak_memory_bytes < 5 * queries + statistics
    assert plain.peak_memory_bytes > scores
    assert plain.step_time_s > 3 * fused.step_time_s
