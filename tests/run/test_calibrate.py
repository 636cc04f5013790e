"""Calibration of eight virtual devices, and of machines whose numbers are known."""

import io
import math
import sys
from itertools import pairwise

import jax
import pytest

import meshwright as mw
from meshwright.errors import MachineError
from meshwright.machine import Curve
from meshwright.machine.measured_chip import TINY, probes_of
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.run.local.calibrate import survey
from meshwright.run.local.fitted_machine import describe, fit_level

LATENCY_S, RATE = 2e-5, 3e9
START_S, TINY_S, OP_S, PER_S = 1e-4, 1e-6, 1e-7, 1e11


def known_s(probe, devices):
    """Seconds of one op of a chain on a switch and units of 1e11 operations per second."""
    if probe.kind not in COLLECTIVE_S:
        return TINY_S if probe == TINY else OP_S + probe.size / PER_S
    around = LATENCY_S + probe.size * (devices - 1) / devices / RATE
    if probe.kind == "permute":
        return LATENCY_S + probe.size / RATE
    return 2 * around if probe.kind in ("all_reduce", "reduce_scatter") else around


class Known:
    """A machine with known numbers, whose programs advance a simulated clock."""

    def __init__(self, devices, compile_s=0.1):
        self.devices, self.compile_s, self.now_s, self.ran = devices, compile_s, 0.0, []

    def program_s(self, probe, count):
        self.ran.append(probe)
        seconds = START_S + count * known_s(probe, self.devices)
        self.now_s += self.compile_s + 5 * seconds
        return seconds

    def survey(self, budget_s, memory_bytes=1e12):
        return survey(
            self.program_s, self.devices, memory_bytes, budget_s, lambda: self.now_s
        )


@pytest.mark.parametrize("devices", [2, 8])
@pytest.mark.parametrize("budget_s", [1, 1000])
def test_the_fit_recovers_latency_and_bandwidth(devices, budget_s):
    samples = Known(devices).survey(budget_s)
    links = [s for s in samples if s[0].kind in COLLECTIVE_S]
    assert {probe.kind for probe, _ in links} == set(COLLECTIVE_S)
    level, error = fit_level(links, devices)
    assert math.isclose(level.latency_s, LATENCY_S, rel_tol=1e-6)
    assert math.isclose(level.link_bytes_per_s, RATE, rel_tol=1e-6)
    assert error < 1e-6


@pytest.mark.parametrize("power", [0, 2])
def test_noise_never_fits_negative_latency_or_infinite_bandwidth(power):
    """Times that do not depend on the size, and times that grow with its square."""
    (*_, (_, _, probes)) = probes_of(8, sorted(COLLECTIVE_S))
    samples = [(probe, 1e-6 * probe.size**power) for probe in probes]
    level, _ = fit_level(samples, 8)
    assert level.latency_s >= 0
    assert 0 < level.link_bytes_per_s < math.inf


def test_a_known_chip_is_found():
    samples = Known(1).survey(1000)
    machine = describe(samples, jax.devices()[:1], "known", "by hand")
    chip = machine.chip
    assert math.isclose(chip.launch_s, TINY_S, rel_tol=1e-3)
    for peak in (*chip.flops_per_s.values(), chip.vector_flops_per_s):
        assert math.isclose(peak, PER_S, rel_tol=1e-2)
    assert set(chip.flops_per_s) == {"float32", "bfloat16", "float16"}
    for probe, op_s in samples[1:]:
        if probe.kind == "matmul":
            share = chip.efficiency["product"].share(probe.size)
            rate = chip.flops_per_s["float32"] * share
            assert math.isclose(probe.size / rate, op_s, rel_tol=1e-2)
    assert machine.sources["chip.launch_s"] == (
        "measured: float32 copy 8, in a chain, by hand"
    )
    assert machine.levels == ()


@pytest.mark.parametrize("budget_s", [20, 60, 200])
def test_calibration_stays_within_its_budget_and_uses_it(budget_s):
    known = Known(8, compile_s=0.5)
    known.survey(budget_s)
    assert budget_s / 4 < known.now_s < 1.2 * budget_s


def test_more_time_measures_more():
    counts = []
    for budget_s in (1, 20, 200):
        known = Known(8, compile_s=0.5)
        known.survey(budget_s)
        counts.append(len(known.ran))
    assert counts[0] < counts[1] < counts[2]


def test_probes_that_would_fill_the_memory_are_left_out():
    known = Known(1)
    known.survey(1e6, memory_bytes=1e9)
    held = max(4 * math.prod(probe.shapes[0]) for probe in known.ran)
    assert 1e9 / 64 < held <= 1e9 / 16


# -- of this process ----------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate") / "here.toml"
    mw.calibrate(path, name="here", budget_s=0.1, progress=False)
    return path


def test_the_file_is_a_machine_of_these_devices(path):
    machine = mw.machine(path, chips=8)
    assert (machine.name, machine.title) == ("here", "8 x cpu, calibrated")
    assert (machine.compiler, machine.num_devices) == ("cpu", 8)
    assert mw.machine(path).num_devices == 1
    chip = machine.chip
    assert chip.usable_bytes == chip.hbm_bytes > 0
    assert 0 < chip.launch_s < 1
    assert (chip.peak_w, chip.mean_w, chip.usd_per_hour) == (None, None, None)
    (level,) = machine.levels
    assert level.extents == (8,)
    assert level.link_bytes_per_s > 0


def test_curves_are_of_growing_sizes_and_shares_up_to_one(path):
    curves = mw.machine(path).chip.efficiency
    assert set(curves) == {"product", "convolution", "vector", "memory"}
    for curve in curves.values():
        assert isinstance(curve, Curve)
        assert all(a < b for (a, _), (b, _) in pairwise(curve.points))
        assert all(0 < share <= 1 for _, share in curve.points)


def test_every_number_says_that_it_was_measured(path):
    sources = mw.machine(path, chips=8).sources
    known = {"chip.hbm_bytes", "chip.usable_bytes", "levels[0].extents"}
    for key, source in sources.items():
        is_measured = source.startswith("measured: ")
        assert is_measured == (key not in known), key
        if is_measured:
            assert source.endswith(f"best of 2 or more, jax {jax.__version__}, cpu")
    assert sources["chip.hbm_bytes"] == "os.sysconf: memory of the host, 1/8 of it"
    assert "collectives" in sources["levels[0].latency_s"]


def test_a_step_can_be_planned_on_it(path):
    step = mw.partition(lambda x, w: x @ w, {"data": 8}, [mw.shard({"x": 0}, "data")])
    f32 = jax.ShapeDtypeStruct((64, 64), "float32")
    assert step.plan(f32, f32).on(mw.machine(path, chips=8)).step_time_s > 0


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_on_a_terminal_only(monkeypatch, progress):
    monkeypatch.setattr(
        "meshwright.run.local.calibrate.program_timer",
        lambda devices, repeats, show, clock: show("looking") or Known(8).program_s,
    )
    monkeypatch.setattr(sys, "stderr", Terminal())
    machine = mw.calibrate(budget_s=0.1, progress=progress)
    assert machine.name == "this-machine"
    assert ("looking" in sys.stderr.getvalue()) == progress
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    mw.calibrate(budget_s=0.1)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "nowhere/here.toml"}, "there is no folder nowhere; make it first"),
        ({"path": "here.json"}, r"here.json; wanted a file that ends in \.toml"),
        ({"budget_s": 0}, "budget_s is 0; wanted seconds above 0"),
        ({"budget_s": -1.0}, "budget_s is -1.0"),
        ({"budget_s": math.nan}, "budget_s is nan"),
    ],
)
def test_refusals_come_before_measuring(arguments, words):
    with pytest.raises(MachineError, match=words):
        mw.calibrate(**arguments)
