"""Every target runs every program that it can, and computes what JAX computes."""

import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError
from meshwright.features.deploy.write_deployment import load_deployed
from tests.features.deploy import programs

pytestmark = pytest.mark.deploy

TARGETS = ("iree-cpu", "litert", "onnx", "wasm")
WITH_LOOPS = ("iree-cpu", "onnx", "wasm")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", programs.EVERY)
def test_results_are_those_of_jax(name, target, tmp_path):
    fn, args = programs.EVERY[name]
    record = mw.deploy(fn, args, to=target, out=tmp_path / "out")
    assert record.error is not None
    assert record.error < 2e-5
    assert (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("target", WITH_LOOPS)
def test_loops_of_unknown_length_run_where_the_format_has_them(target, tmp_path):
    record = mw.deploy(
        programs.newton, programs.NEWTON, to=target, out=tmp_path / "out"
    )
    assert record.error is not None
    assert record.error < 1e-6
    model = load_deployed(tmp_path / "out")
    x = programs.NEWTON[0]
    np.testing.assert_allclose(model(x=x, n=20)["out"], np.sqrt(x), rtol=1e-6)
    np.testing.assert_array_equal(model(x=x, n=0)["out"], x)


@pytest.mark.parametrize("target", TARGETS)
def test_a_training_step_repeats_on_its_own_state(target, tmp_path):
    mw.deploy(programs.step, programs.STEP, to=target, out=tmp_path / "out")
    model = load_deployed(tmp_path / "out")
    state, batch = programs.STEP
    inputs = {"state.params.w": state["params"]["w"], "state.count": state["count"]}
    inputs |= {f"batch.{name}": array for name, array in batch.items()}
    for _ in range(3):
        outputs = model(**inputs)
        inputs = model.next_inputs(inputs, outputs)
        state, loss = jax.jit(programs.step)(state, batch)
    np.testing.assert_allclose(outputs["out.1"], loss, rtol=1e-5)
    np.testing.assert_allclose(
        inputs["state.params.w"], state["params"]["w"], rtol=1e-4, atol=1e-6
    )
    assert inputs["state.count"] == 3


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_of_other_names_and_shapes_are_refused_when_called(target, tmp_path):
    mw.deploy(jnp.sin, (np.ones(3, np.float32),), to=target, out=tmp_path / "out")
    model = load_deployed(tmp_path / "out")
    with pytest.raises(ValueError, match="the inputs are image; wanted x"):
        model(image=np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"x has shape \[4\]; wanted \[3\]"):
        model(x=np.ones(4, np.float32))


def test_a_wasm_model_whose_call_failed_or_was_interrupted_is_not_used_again(
    tmp_path, monkeypatch
):
    x = np.ones(3, np.float32)
    mw.deploy(jnp.sin, (x,), to="wasm", out=tmp_path / "out")
    killed, interrupted = (load_deployed(tmp_path / "out") for _ in range(2))
    killed._run._process.kill()
    with pytest.raises(RuntimeError, match=r"ended \(code -9\); load the model again"):
        killed(x=x)

    def interrupt(size):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(interrupted._run, "_read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            interrupted(x=x)
    for model in (killed, interrupted):
        assert model._run._process.poll() is not None
        with pytest.raises(RuntimeError, match="load it again"):
            model(x=x)


def test_ctrl_c_between_calls_does_not_end_a_wasm_model(tmp_path):
    mw.deploy(jnp.sin, (np.ones(3, np.float32),), to="wasm", out=tmp_path / "out")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from meshwright.features.deploy.write_deployment import load_deployed\n"
        "model = load_deployed(Path(sys.argv[1]))\n"
        "try:\n"
        "    os.killpg(0, signal.SIGINT)\n"
        "    signal.pause()\n"
        "except KeyboardInterrupt:\n"
        "    print(*model(x=np.zeros(3, np.float32)).values())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "out"],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[0. 0. 0.]\n"), done.stderr


def test_node_ends_during_a_call_when_its_python_is_killed(tmp_path):
    mw.deploy(programs.newton, programs.NEWTON, to="wasm", out=tmp_path / "out")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from meshwright.features.deploy.write_deployment import load_deployed\n"
        "model = load_deployed(Path(sys.argv[1]))\n"
        "print(model._run._process.pid, flush=True)\n"
        "model(x=np.ones(model.about['inputs'][0]['shape']), n=2**31 - 1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "out"],
        stdout=subprocess.PIPE,
        text=True,
    ) as python:
        assert python.stdout is not None
        node = int(python.stdout.readline())
        time.sleep(0.5)  # the call computes
        assert is_running(node)
        python.kill()
    deadline_s = time.monotonic() + 10
    while is_running(node) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not is_running(node)


def is_running(pid):
    """Whether a process exists and is no zombie."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.strip()[:1] not in ("", "Z")


def in_several_ops(x, half):
    """Ops of JAX that ONNX lacks, with arrays of two dtypes and with scalars."""
    size = jnp.abs(x) + 0.1
    return [
        *(jnp.arctan2(x, 2.0), jnp.arctan2(1.0, x), jnp.arctan2(x, x[::-1])),
        *(jnp.expm1(x), jnp.expm1(1e-3 * x), jnp.expm1(half)),
        *(jnp.log1p(size), jnp.log1p(1e-4 * size), jnp.log2(size)),
        *(jax.lax.rsqrt(size), jnp.cbrt(x), jax.scipy.special.erfc(x)),
        *(jnp.exp2(x), jnp.exp2(x[0]), jnp.square(half), jnp.square(jnp.arange(4))),
    ]


def test_ops_that_onnx_writes_in_several_compute_what_jax_computes(tmp_path):
    x = np.linspace(-3, 3, 8, dtype=np.float32)
    half = np.linspace(-1, 1, 4).astype(np.float16)
    record = mw.deploy(in_several_ops, (x, half), to="onnx", out=tmp_path / "out")
    assert record.error is not None
    assert record.error < 1e-6


@pytest.mark.parametrize("target", TARGETS)
def test_attention_of_one_example_is_deployed(target, tmp_path):
    def attention(x):
        return jax.nn.dot_product_attention(x, x, x)

    x = programs.normal(1, 6, 2, 4)
    record = mw.deploy(attention, (x,), to=target, out=tmp_path / "out")
    assert record.error is not None
    assert record.error < 1e-6


def draw(key, x):
    return x + jax.random.normal(key, x.shape)


@pytest.mark.parametrize("target", ["iree-cpu", "wasm"])
def test_random_numbers_are_those_of_jax(target, tmp_path):
    args = jax.random.key(3), np.zeros((2, 5), np.float32)
    record = mw.deploy(draw, args, to=target, out=tmp_path / "out")
    assert "key: uint32[2]" in record.inputs
    assert record.error is not None
    assert record.error < 1e-6


def test_vulkan_compiles_and_runs_or_says_why_not(tmp_path):
    record = mw.deploy(
        programs.mlp, programs.MLP, to="iree-vulkan", out=tmp_path / "out"
    )
    assert (tmp_path / "out" / "model.vmfb").stat().st_size > 1000
    if record.error is None:
        assert "no Vulkan driver" in record.note
    else:
        assert record.error < 1e-4


def test_the_program_of_one_device_of_a_plan_is_a_module(tmp_path):
    plan = mw.partition(
        programs.convolution, {"data": 2}, [mw.shard({"image": 0}, "data")]
    ).plan(*programs.CONVOLUTION)
    record = mw.deploy(plan, to="iree-cpu", out=tmp_path / "out")
    assert "image: float32[1, 16, 16, 3]" in record.inputs
    assert record.error is not None
    assert record.error < 1e-5


def test_a_plan_whose_devices_need_each_other_is_refused_with_its_collectives(tmp_path):
    plan = mw.partition(
        programs.step, {"data": 2}, [mw.shard({"batch.*": 0}, "data")]
    ).plan(*programs.STEP)
    with pytest.raises(DeployError, match=r"all_reduce at .*programs\.py:\d+"):
        mw.deploy(plan, to="iree-cpu", out=tmp_path / "out")


@pytest.mark.parametrize("target", ["iree-cpu", "litert", "onnx"])
def test_weights_of_packed_unsigned_integers_are_unpacked(target, tmp_path):
    def fn(params, x):
        low, high = params["packed"] & 15, params["packed"] >> 4
        whole = jnp.stack([low, high], -1).reshape(4, 4).astype(jnp.float32) - 8
        return x @ whole * params["scale"].astype(jnp.float32)

    packed = np.arange(8, dtype=np.uint8).reshape(4, 2) * 36
    params = {"packed": packed, "scale": np.uint32(3)}
    x = np.float32([[1, -2, 3, 0.5]])
    record = mw.deploy(fn, (params, x), to=target, out=tmp_path / "out")
    assert record.error < 1e-6


def test_iree_keeps_weights_in_an_archive_of_their_own(tmp_path):
    mw.deploy(programs.attention, programs.ATTENTION, to="iree-cpu", out=tmp_path / "a")
    assert (tmp_path / "a" / "weights.irpa").stat().st_size > 32 * 16 * 4


@pytest.mark.parametrize("target", ["litert", "onnx"])
def test_int8_stores_weights_in_a_quarter_and_stays_near(target, tmp_path):
    rng = np.random.default_rng(1)

    def net(params, x):
        return np.tanh(1) * (x @ params["w"]) @ params["v"]

    params = {
        "w": rng.normal(size=(256, 256)).astype(np.float32) / 16,
        "v": rng.normal(size=(256, 64)).astype(np.float32) / 16,
    }
    data = [{"x": rng.normal(size=(8, 256)).astype(np.float32)} for _ in range(4)]
    args = params, data[0]["x"]
    exact = mw.deploy(net, args, to=target, out=tmp_path / "exact")
    small = mw.deploy(
        net, args, to=target, out=tmp_path / "int8", quantize="int8", calibration=data
    )
    assert exact.files[0][1] > 3 * small.files[0][1]
    assert small.error is not None
    assert 1e-4 < small.error < 0.05


@pytest.mark.parametrize("target", ["litert", "onnx"])
def test_int8_products_of_attention_run(target, tmp_path):
    def heads(params, x):
        q, k = (jnp.einsum("bsd,dnh->bnsh", x, params[n]) + 0.1 for n in "qk")
        return jax.nn.softmax(jnp.einsum("bnsh,bnth->bnst", q, k))

    x = programs.normal(1, 8, 16)
    record = mw.deploy(
        heads, (programs.ATTENTION[0], x), to=target, out=tmp_path / "out",
        quantize="int8", calibration=[{"x": x}],
    )  # fmt: skip
    assert record.error is not None
    assert record.error < 0.05


@pytest.mark.parametrize("target", ["onnx", "litert"])
def test_int8_sums_of_large_products_do_not_saturate(target, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)
    record = mw.deploy(
        lambda params, x: x @ params, (w, x), to=target, out=tmp_path / "out",
        quantize="int8", calibration=[{"x": x}],
    )  # fmt: skip
    assert record.error < 0.02


def test_int8_ranges_are_not_those_of_outliers(tmp_path):
    rng = np.random.default_rng(0)
    spread = np.exp(rng.normal(size=64))
    params = {
        "a": rng.normal(size=(32, 64)).astype(np.float32) / 5,
        "b": (rng.normal(size=(64, 64)) / 8 * spread).astype(np.float32),
        "c": rng.normal(size=(64, 10)).astype(np.float32) / 8,
    }

    def net(params, x):
        return jax.nn.gelu(jax.nn.gelu(x @ params["a"]) @ params["b"]) @ params["c"]

    data = rng.standard_t(3, size=(72, 32, 32)).astype(np.float32)
    calibration = [{"x": x} for x in data[:8]]
    exact = [np.asarray(net(params, x)).argmax(-1) for x in data[8:]]
    shares = {}
    for target in ("litert", "onnx"):
        mw.deploy(
            net, (params, data[0]), to=target, out=tmp_path / target,
            quantize="int8", calibration=calibration,
        )  # fmt: skip
        model = load_deployed(tmp_path / target)
        found = [model(x=x)["out"].argmax(-1) for x in data[8:]]
        shares[target] = np.mean(np.equal(found, exact))
    assert shares["onnx"] > shares["litert"] - 0.01
    assert shares["onnx"] > 0.94


def test_calibration_with_other_inputs_is_refused(tmp_path):
    with pytest.raises(DeployError, match="a calibration input has z; wanted"):
        mw.deploy(
            programs.mlp, programs.MLP, to="onnx", out=tmp_path / "a",
            quantize="int8", calibration=[{"z": programs.MLP[1]}],
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_a_stage_of_a_pipeline_is_a_module_that_feeds_the_next(tmp_path):
    def fn(params, x):
        h = mw.stage(jnp.tanh(x @ params["a"]), "upper")
        return jnp.tanh(h @ params["b"] + h)

    params = {"a": programs.normal(6, 6), "b": programs.normal(6, 6)}
    x = programs.normal(8, 6)
    staged = mw.pipeline(fn, {"stage": 2}, microbatches=4, batch="x").plan(params, x)
    lower, upper = (
        load_deployed(Path(mw.deploy(staged, stage=s, to="iree-cpu", out=out).folder))
        for s, out in (("0", tmp_path / "lower"), ("upper", tmp_path / "upper"))
    )
    sent = lower(**{"params.a": params["a"], "x": x[:2]})
    given = {"params.b": params["b"], "received.0": sent["sent.0"]}
    np.testing.assert_allclose(upper(**given)["out"], fn(params, x[:2]), rtol=1e-5)
    with pytest.raises(DeployError, match="no stage 'uper'; did you mean 'upper'"):
        mw.deploy(staged, stage="uper", to="iree-cpu", out=tmp_path / "other")
