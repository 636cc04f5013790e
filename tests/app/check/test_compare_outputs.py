"""Reports of a check, with and without ill-conditioned outputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import meshwright as mw
from meshwright.app.check.compare_outputs import _bias, check_outputs
from meshwright.app.check.report import CheckReport, OutputError, tolerance_of
from meshwright.errors import PlanError
from meshwright.run.local import device_ops

PLAIN = OutputError("loss", "float32", (), 3e-6, 2e-4)
ILL_CONDITIONED = OutputError("bias", "float32", (8,), 3.1, 8.0, 2.0, True)


def test_without_ill_conditioned_outputs_the_summary_has_the_largest_error():
    assert CheckReport((PLAIN,)).summary == "equal: 1 outputs, largest error 3.00e-06"


def test_ill_conditioned_outputs_have_a_count_and_an_error_of_their_own():
    first, second = CheckReport((PLAIN, ILL_CONDITIONED, PLAIN)).summary.splitlines()
    assert first == "equal: 3 outputs, largest error 3.00e-06 among 2 of them"
    assert second.startswith("1 are ill-conditioned, largest error 3.10e+00; their")


def test_a_report_of_ill_conditioned_outputs_alone_names_no_other_error():
    first, second = CheckReport((ILL_CONDITIONED,)).summary.splitlines()
    assert first == "equal: 1 outputs"
    assert second.startswith("1 are ill-conditioned")


def test_a_report_is_html_in_notebooks():
    wrong = OutputError("<w>.0.up", "float32", (8, 4), 1.0, 2e-4)
    html = CheckReport((PLAIN, wrong, dataclasses.replace(wrong, path="<w>.1.up")))
    shown = html._repr_html_()
    assert "&lt;w&gt;.*.up (x2)" in shown
    assert "WRONG" in shown
    assert "NOT EQUAL: 3 outputs" in shown


def test_keys_beside_an_ill_conditioned_output_are_compared():
    def step(key, x):  # a gradient that is rounding alone, divided by its size
        gradient = x - x * (1 / 3) - x * (2 / 3)
        return jax.random.split(key, 2), gradient / jnp.maximum(abs(gradient), 1e-30)

    args = jax.random.key(0), jnp.linspace(1, 2, 64)
    report = mw.partition(step, {"data": 4}, [mw.shard({"x": 0}, "data")]).check(*args)
    assert [each.path for each in report.outputs] == ["out.0", "out.1"]
    assert report.outputs[0].error == 0


def test_an_output_beyond_its_own_tolerance_is_not_equal():
    wrong = OutputError("loss", "float32", (), 1.0, 2e-4, sensitivity=1e-7)
    report = CheckReport((wrong, ILL_CONDITIONED))
    assert not wrong.is_ill_conditioned
    assert report.summary.startswith(
        "NOT EQUAL: 2 outputs, largest error 1.00e+00 among"
    )


def test_integer_outputs_that_differ_are_not_ill_conditioned():
    def step(x):
        return jnp.argmax(x, axis=1), x.sum()

    def wrong(leaves):
        indices, total = jax.jit(step)(*leaves)
        return [indices + 1, total]

    x = np.eye(16, dtype=np.float32)
    report = check_outputs(("indices", "total"), step, wrong, [x])
    assert [output.ok for output in report.outputs] == [False, True]
    assert not any(output.is_ill_conditioned for output in report.outputs)


def test_a_quotient_of_rounding_errors_is_ill_conditioned():
    """Adam's first step: what is zero but for rounding, divided by its own size."""

    def step(x):
        zero = x.sum(axis=0) - jnp.ones(len(x)) @ x
        return {"sign": zero / (jnp.abs(zero) + 1e-12), "sum": jnp.abs(x).sum()}

    x = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    report = mw.partition(step, {"data": 8}, [mw.shard({"x": 0}, axis="data")]).check(x)
    assert report.ok
    by_path = {output.path: output for output in report.outputs}
    assert not by_path["out.sum"].is_ill_conditioned
    assert by_path["out.sign"].is_ill_conditioned


def test_an_output_that_rounding_moves_in_one_draw_of_twenty_is_ill_conditioned():
    def are_both_above(x):
        return (jnp.where(jnp.all(x > 1.5), 1.0, 0.0),)

    def other_branch(leaves):
        return (1.0 - are_both_above(*leaves)[0],)

    on_the_threshold = np.full(2, 1.5, np.float32)
    report = check_outputs(("y",), are_both_above, other_branch, [on_the_threshold])
    assert report.ok
    assert report.outputs[0].is_ill_conditioned
    beside_it = on_the_threshold - np.float32(0.1)
    assert not check_outputs(("y",), are_both_above, other_branch, [beside_it]).ok


def mixed_step(params, x):
    """Gradients in mixed precision."""

    def loss(params):
        h = jnp.tanh(x.astype(jnp.bfloat16) @ params["up"].astype(jnp.bfloat16))
        out = h @ params["down"].astype(jnp.bfloat16)
        return jnp.mean(out.astype(jnp.float32) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return grads, value


MIXED = (
    {
        "up": np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32),
        "down": np.random.default_rng(1).normal(size=(128, 16)).astype(np.float32),
    },
    np.random.default_rng(2).normal(size=(256, 64)).astype(np.float32),
)


def test_programs_in_16_bits_are_compared_in_float32_too():
    step = mw.partition(mixed_step, {"data": 8}, [mw.data_parallel("data", "x")])
    report = step.check(*MIXED)
    assert report.ok, str(report)
    assert all(output.wide.error < 1e-4 for output in report.outputs)
    alone = step.check_float32(*MIXED)
    assert alone.ok
    assert [output.wide for output in alone.outputs] == [None] * 3


@pytest.mark.parametrize("factor", [1.01, 1.1])
def test_a_gradient_that_is_a_little_too_large_is_wrong(factor, monkeypatch):
    """The rounding of 16 bits alone would hide it."""
    reduce = device_ops._FUNCTIONS["all_reduce"]
    monkeypatch.setitem(
        device_ops._FUNCTIONS, "all_reduce", lambda *a, **k: factor * reduce(*a, **k)
    )
    step = mw.partition(mixed_step, {"data": 8}, [mw.data_parallel("data", "x")])
    report = step.check(*MIXED)
    assert [output.ok for output in report.outputs] == [False] * 3
    assert not step.check_float32(*MIXED).ok


def test_a_shard_map_cannot_be_widened():
    mesh = jax.make_mesh((8,), ("m",), axis_types=(AxisType.Auto,))

    def step(x):
        spec = P("m")
        return jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)(x)

    half = mw.partition(step, {"m": 8})
    x = jnp.ones(8, jnp.bfloat16)
    assert half.check(x).ok
    with pytest.raises(PlanError, match="has a shard_map"):
        half.check_float32(x)


def test_a_function_may_have_a_keyword_of_any_name():
    """All arguments of `check` are the function's own."""

    def step(x, dtype=jnp.float32):
        return x.astype(dtype)

    run = mw.partition(
        step, {"data": 8}, [mw.shard({"x": 0}, "data")], static_argnames="dtype"
    )
    (output,) = run.check(np.ones(8), dtype=jnp.bfloat16).outputs
    assert (output.dtype, output.ok) == ("bfloat16", True)
    assert run.check_float32(np.ones(8), dtype=jnp.bfloat16).ok


@pytest.fixture
def compiled():
    """Names of the functions that XLA compiles while the test runs."""
    names = []

    def listen(event, duration, **fields):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fields.get("fun_name", ""))

    jax.monitoring.register_event_duration_secs_listener(listen)
    return names


def test_a_check_compiles_only_what_was_not_compiled_before(compiled):
    step = mw.partition(
        mixed_step, {"data": 8}, [mw.data_parallel("data", "x")], donate_argnums=1
    )
    step(*MIXED)
    assert len(compiled) == 1
    assert "device_step" in compiled[0]
    assert step.check(*MIXED).ok
    steps = [name for name in compiled if "device_step" in name]
    assert len(steps) == 2  # the other is the program in float32
    compiled.clear()
    assert step.check(*MIXED).ok
    assert step.check_float32(*MIXED).ok
    assert step(*MIXED) is not None
    assert compiled == []


def test_an_error_in_one_direction_shows_among_noise():
    """By regression: elements are off by some per cent, all together by one."""
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=4096)
    noisy = wanted * (1 + 0.03 * rng.normal(size=4096))
    assert _bias(wanted, noisy) == 0
    assert _bias(wanted, 1.01 * noisy) > 0.005
    assert _bias(wanted[:8], 1.01 * wanted[:8]) == 0  # too few to tell
    assert not dataclasses.replace(PLAIN, tolerance=0.5, bias=0.01).ok


def test_an_output_that_is_all_nan_is_not_equal():
    def step(x):
        return x / 0 * 0, jnp.where(x > 0, jnp.nan, x)

    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    report = mw.partition(step, {"data": 8}, [mw.shard({"x": 0}, "data")]).check(x)
    assert [output.ok for output in report.outputs] == [False, True]
    assert "all NaN in the original" in str(report)


def test_a_float32_output_behind_a_narrow_product_has_its_tolerance():
    def step(x, w):
        half = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)
        return half.astype(jnp.float32) * 1.0

    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
    report = mw.partition(step, {"m": 8}, [mw.shard({"x": 1, "w": 0}, "m")]).check(x, w)
    (output,) = report.outputs
    assert report.ok
    assert tolerance_of("float32") < output.error < output.tolerance == 3e-2
    assert not output.is_ill_conditioned
