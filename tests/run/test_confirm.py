"""Ahead-of-time compilers: their requests, their reports and their errors."""

import importlib.util
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import CompilerError
from meshwright.machine import load_machine
from meshwright.run.compilers.confirm import DeviceStep, confirm
from meshwright.run.compilers.gpu import GPU, target_config
from meshwright.run.compilers.tpu import TPU, assigned_bytes
from tests.fake_compiler import MEMORY, install


def small_step():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

    args = (
        jax.ShapeDtypeStruct((256, 512), jnp.float32),
        jax.ShapeDtypeStruct((1024, 256), jnp.float32),
    )
    partitioned = mw.partition(
        step, {"data": 4, "model": 2}, [mw.data_parallel("data", "x")]
    )
    decided = partitioned.plan(*args).decided
    return DeviceStep(decided.lowered, decided.captured.avals)


@pytest.fixture(scope="module")
def step():
    return small_step()


def test_a_machine_without_such_a_compiler_is_refused(step):
    with pytest.raises(CompilerError, match="no ahead-of-time compiler for cpu"):
        confirm(step, load_machine("cpu", 8))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("tpu-v5e", r"TPU compiler needs libtpu: pip install 'meshwright\[tpu\]'"),
        ("h100", r"GPU compiler needs jax_cuda13_plugin: pip install .*\[gpu\]"),
    ],
)
def test_without_the_package_the_error_says_what_to_install(
    step, machine, words, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match=words):
        confirm(step, load_machine(machine, 8))


def test_a_machine_without_the_compilers_fields_says_which_it_lacks(step, monkeypatch):
    install(monkeypatch)
    with pytest.raises(CompilerError, match=r"h100 lacks a table \[gpu\]"):
        confirm(step, replace(load_machine("h100", 8), gpu=None))
    with pytest.raises(CompilerError, match="tpu-v4 lacks topology"):
        confirm(step, replace(load_machine("tpu-v4", 8), topology=""))


def test_a_gpu_is_described_by_its_own_numbers():
    text = target_config(load_machine("a100-80g", 8))
    for line in (
        "major: 8 minor: 0 feature_extension: NONE",
        "core_count: 108",
        "clock_rate_ghz: 1.41",
        "memory_bandwidth: 2039000000000",
        'device_description_str: "NVIDIA A100 SXM 80 GB"',
    ):
        assert line in text
    assert "ACCELERATED_FEATURES" in target_config(load_machine("b200", 8))


def test_machines_have_the_topologies_of_their_compilers():
    name, options = GPU.target(load_machine("h100", 16))
    assert (name, options["topology"]) == ("h100", "1x2x8")
    assert GPU.target(load_machine("h100", 4))[1]["topology"] == "1x1x4"
    assert TPU.target(load_machine("tpu-v5e", 16)) == ("v5e:4x4", {})
    assert TPU.target(load_machine("tpu-v5e", 512))[1] == {"num_slices": 2}


def test_the_gpu_report_has_memory_and_collectives_and_no_cycles(step, monkeypatch):
    install(monkeypatch, "slow")
    machine = load_machine("h100", 8)
    compiled = confirm(step, machine, full=True, timeout_s=300)
    assert (compiled.peak_bytes, compiled.fits) == (7000, True)
    assert compiled.flops == len(compiled.hlo)
    (moved,) = compiled.collectives
    assert (moved.kind, moved.num_bytes, moved.seconds) == ("all_reduce", 2048, None)
    assert compiled.cycles is None


def test_usable_memory_decides_whether_a_step_fits_a_gpu(step, monkeypatch):
    install(monkeypatch)
    machine = load_machine("h100", 8)
    small = replace(machine, chip=replace(machine.chip, usable_bytes=6999))
    assert not confirm(step, small).fits


@pytest.mark.parametrize(
    ("does", "flops"), [("calls cuDNN", 11), ("calls cuBLAS", None)]
)
def test_products_of_a_library_are_counted_before_they_become_calls(
    step, does, flops, monkeypatch
):
    install(monkeypatch, does)
    assert confirm(step, load_machine("h100", 8)).flops == flops


def test_a_tpu_compiler_is_stopped_once_buffers_are_assigned(step, monkeypatch):
    install(monkeypatch, "slow")
    compiled = confirm(step, load_machine("tpu-v5e", 8), timeout_s=300)
    assert (compiled.peak_bytes, compiled.cycles) == (7000, None)
    assert compiled.compile_s < 300


def test_a_finished_tpu_compilation_reports_cycles(step, monkeypatch):
    install(monkeypatch)
    compiled = confirm(step, load_machine("tpu-v5e", 8), full=True)
    assert (compiled.peak_bytes, compiled.cycles) == (MEMORY["peak_bytes"], 3000)


def test_a_tpu_compiler_out_of_memory_says_what_it_needs(step, monkeypatch):
    install(monkeypatch, "refuses")
    compiled = confirm(step, load_machine("tpu-v5e", 8))
    assert not compiled.fits
    assert compiled.peak_bytes == 20.5 * 2**30


@pytest.mark.parametrize("machine", ["tpu-v5e", "h100"])
def test_a_compiler_that_fails_is_quoted(step, machine, monkeypatch):
    install(monkeypatch, "fails")
    with pytest.raises(CompilerError, match=r"failed: jaxlib\.Some.*no such topology$"):
        confirm(step, load_machine(machine, 8))


def test_a_compiler_that_exceeds_the_timeout_is_stopped(step, monkeypatch):
    install(monkeypatch, "slow")
    with pytest.raises(CompilerError, match=r"longer than 1\.0 s"):
        confirm(step, load_machine("tpu-v5e", 8), full=True, timeout_s=1.0)


def test_a_folder_with_other_files_is_refused(step, monkeypatch, tmp_path):
    install(monkeypatch)
    (tmp_path / "log").write_text("of something else")
    with pytest.raises(CompilerError, match="is not empty"):
        confirm(step, load_machine("h100", 8), folder=tmp_path)


# -- the real ones ---------------------------------------------------------------------


def needs_tpu():
    pytest.importorskip("libtpu", reason="needs meshwright[tpu]")


def needs_gpu():
    pytest.importorskip("jax_cuda13_plugin", reason="needs meshwright[gpu]")


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_the_tpu_compiler_says_what_a_step_needs(step, full):
    needs_tpu()
    compiled = confirm(step, load_machine("tpu-v5e", 8), full=full)
    assert compiled.fits
    assert compiled.peak_bytes > 256 * 512 * 4
    assert "all-reduce" in compiled.hlo
    assert (compiled.cycles is not None) == full
    assert np.isfinite(compiled.compile_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a100-40g", "a100-80g", "b200", "h100", "h200", "v100"]
)
def test_the_gpu_compiler_says_what_a_step_needs(step, name):
    needs_gpu()
    compiled = confirm(step, load_machine(name, 8))
    assert compiled.fits
    assert compiled.peak_bytes > 256 * 512 * 4
    assert {each.kind for each in compiled.collectives} == {"all_reduce"}
    assert sum(each.num_bytes for each in compiled.collectives) == 256 * 512 * 4


@pytest.mark.slow
def test_an_axis_of_sub_axes_and_a_split_torus_compile():
    needs_tpu()

    def step(x):
        return jnp.sum(x.reshape(12, 4, 8) ** 2)

    mesh = {"data": 8, "model": 2}
    partitioned = mw.partition(step, mesh, [mw.data_parallel("data", "x")])
    decided = partitioned.plan(jax.ShapeDtypeStruct((48, 8), jnp.float32)).decided
    assert len(decided.lowered.mesh.axes) > 2
    step = DeviceStep(decided.lowered, decided.captured.avals)
    assert confirm(step, load_machine("tpu-v6e", 16)).fits


def test_arguments_of_calls_on_another_core_take_no_memory():
    assignment = """
allocation 0: size 4, color 8, page 0, thread-local:
allocation 1: size 512, page 0, thread-local:
allocation 2: size 300, parameter 0, shape |f32[75]| at ShapeIndex {}:
 value: <1 p @0> (size=300,offset=0): f32[75]
allocation 3: size 128, color 1, preallocated-temp:
allocation 4: size 6000, preallocated-temp:
"""
    assert assigned_bytes(assignment) == 6300
