"""`mw.tune` from end to end, measured by XLA on this CPU, and its results."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

import meshwright as mw
from meshwright.cli.main import main
from meshwright.errors import CompilerError, PlanError
from meshwright.features.tune.layouts.verdict import Verdict
from meshwright.features.tune.tune import _jitted_if_default
from meshwright.features.tune.tuned_layouts import TunedLayout, TunedLayouts


def step(p, x):
    y = jnp.tanh(x @ p["a"])
    return jnp.sum(y.T @ x), y


def arguments():
    key = jax.random.key(0)
    p = {"a": jax.random.normal(key, (16, 24))}
    return p, jax.random.normal(key, (32, 16))


def tuned_by_hand(layouts, arguments_of=None):
    """A result as a search would give it, for `step`."""
    verdict = Verdict(100.0, bytes_accessed=1e6, in_layouts=((0, 1), (0, 1)))
    return TunedLayouts(
        name="step",
        backend="xla-cpu",
        unit="of default",
        default=verdict,
        auto=verdict,
        baseline="default",
        tuned=dataclasses.replace(verdict, cost=80.0, spread=0.01),
        charged=80.0,
        layouts=layouts,
        argument_layouts=arguments_of or {},
        result_layouts={},
        judged=9,
        screened=40,
        failures=(),
        stopped="stalled",
        history=(100.0, 80.0),
        fingerprint="none",
        seed=0,
    )


PRODUCT = TunedLayout(
    "v01", (1, 0), False, "f32[32, 24]", 1, "dot>reduce", "step.py:3", 0.25
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    pytest.importorskip("flatbuffers")
    path = tmp_path_factory.mktemp("tune") / "verdicts.jsonl"
    return mw.tune(step, arguments(), backend="xla-cpu", budget=5, resume=path), path


def test_a_tuned_function_returns_the_same_numbers(measured):
    tuned, _ = measured
    assert tuned.judged <= 5
    assert tuned.charged <= tuned.base.cost
    for one, other in zip(tuned(*arguments()), step(*arguments()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_result_reads_back_from_json_and_gets_its_function_again(measured):
    tuned, _ = measured
    read = TunedLayouts.from_json(tuned.to_json())
    assert read == tuned
    with pytest.raises(PlanError, match=r"call mw\.with_layouts"):
        read(*arguments())
    again = mw.with_layouts(step, arguments(), read)
    np.testing.assert_allclose(
        again(*arguments())[0], step(*arguments())[0], rtol=1e-5, atol=1e-5
    )
    with pytest.raises(PlanError, match="tuned for another program than step"):
        mw.with_layouts(step, (*arguments()[:1], jnp.ones((8, 16))), read)


def test_layouts_of_arguments_and_values_are_applied_when_the_function_runs(measured):
    tuned, _ = measured
    chosen = dataclasses.replace(
        tuned_by_hand((PRODUCT,), {"x": (1, 0)}), fingerprint=tuned.fingerprint
    )
    again = mw.with_layouts(step, arguments(), chosen)
    np.testing.assert_allclose(
        again(*arguments())[0], step(*arguments())[0], rtol=1e-5, atol=1e-5
    )


def test_arguments_that_have_their_layouts_are_not_copied(measured, monkeypatch):
    tuned, _ = measured
    chosen = dataclasses.replace(
        tuned_by_hand((PRODUCT,), {"x": (1, 0)}), fingerprint=tuned.fingerprint
    )
    again = mw.with_layouts(step, arguments(), chosen)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    p, x = jax.device_put(arguments())
    x = jax.device_put(x, Format(Layout((1, 0)), device))
    expected = again(p, x)

    def copy(*args, **kwargs):
        raise AssertionError("an argument was copied")

    monkeypatch.setattr(jax, "device_put", copy)
    np.testing.assert_array_equal(again(p, x)[0], expected[0])
    with pytest.raises(AssertionError, match="was copied"):
        again(*arguments())


def test_code_has_formats_and_constraints_with_their_source_lines():
    code = tuned_by_hand((PRODUCT,), {"x": (1, 0)}).code
    assert "'x': Format(Layout((1, 0)), sharding)," in code
    assert "# step.py:3: f32[32, 24] (dot>reduce)" in code
    assert "x = with_layout_constraint(x, Layout((1, 0)))" in code


def test_a_result_prints_its_speed_up_and_spread():
    text = str(tuned_by_hand((PRODUCT,)))
    assert "1.250x of default ± 1.0 %" in text
    assert "step.py:3: f32[32, 24] (dot>reduce) (1, 0)  +25.0 %" in text
    assert "nothing better was found" in str(tuned_by_hand(()))


def test_text_that_is_no_result_is_refused():
    for text in ("{}", "[1]", "no json", '{"format": "other", "version": 1}'):
        with pytest.raises(PlanError, match="no result of tuning layouts"):
            TunedLayouts.from_json(text)


def test_a_missing_compiler_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        "meshwright.run.compilers.confirm._is_installed", lambda module: False
    )
    with pytest.raises(CompilerError, match=r"pip install 'meshwright\[tpu\]'"):
        mw.tune(step, arguments(), backend="tpu-v5e")


def test_measuring_without_flatbuffers_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        "meshwright.run.compilers.confirm._is_installed", lambda module: False
    )
    with pytest.raises(CompilerError, match=r"needs flatbuffers: .*meshwright\[tune\]"):
        mw.tune(step, arguments(), backend="xla-cpu")


def test_where_no_layout_is_chosen_the_plain_function_is_called():
    jitted = jax.jit(step)
    assert _jitted_if_default(jitted, tuned_by_hand(())).fn is jitted
    assert hasattr(_jitted_if_default(step, tuned_by_hand(())).fn, "lower")
    assert _jitted_if_default(step, tuned_by_hand((PRODUCT,))).fn is None


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(
        CompilerError, match=r"no backend 'tpu-v5'.*there are xla-cpu, tpu"
    ):
        mw.tune(step, arguments(), backend="tpu-v5")


def test_a_plan_is_tuned_alone_and_a_function_with_arguments():
    with pytest.raises(PlanError, match="wants the arguments"):
        mw.tune(step)
    with pytest.raises(PlanError, match="wants a function or a plan, got 3"):
        mw.tune(3)  # pyright: ignore[reportArgumentType]


def test_the_command_writes_layouts_and_says_by_its_status_whether_any_gain(
    tmp_path, capsys
):
    pytest.importorskip("flatbuffers")
    target = tmp_path / "small.py"
    target.write_text(
        "import jax.numpy as jnp\n\n\ndef make():\n"
        "    return (lambda x: jnp.tanh(x @ x)), (jnp.ones((8, 8)),)\n"
    )
    out = tmp_path / "layouts.json"
    command = f"tune layouts {target} --backend xla-cpu --budget 4 --out {out}"
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    read = TunedLayouts.from_json(out.read_text())
    assert ended.value.code == (0 if read.layouts else 1)
    assert "programs compiled" in capsys.readouterr().out


def test_a_sharded_plan_is_tuned_on_its_local_shapes():
    pytest.importorskip("flatbuffers")

    def fn(w, x):
        return jnp.tanh(x @ w)

    shapes = (
        jax.ShapeDtypeStruct((8, 12), "float32"),
        jax.ShapeDtypeStruct((16, 8), "float32"),
    )
    plan = mw.partition(fn, {"data": 2}, [mw.shard({"x": 0}, "data")]).plan(*shapes)
    tuned = mw.tune(plan, backend="xla-cpu", budget=4)
    assert tuned.judged <= 4
    arrays = jnp.ones((8, 12)), jnp.ones((16, 8))
    np.testing.assert_allclose(tuned(*arrays), fn(*arrays), rtol=1e-5)
