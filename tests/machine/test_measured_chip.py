"""Machines written as TOML and read back."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.machine import (
    Chip,
    Curve,
    Gpu,
    Kind,
    Level,
    Machine,
    load_machine,
    parse_machine,
    preset_names,
)
from meshwright.machine.chip import EFFICIENCY_CLASSES
from meshwright.machine.machine import make_grid
from meshwright.machine.measured_chip import machine_toml

TEXT = st.text(min_size=1, max_size=12)
DTYPES = st.sampled_from(("bfloat16", "float16", "int8", "float8_e4m3fn"))
RATE = st.one_of(st.integers(1, 10**18), st.floats(1e-12, 1e18, allow_subnormal=False))
SHARE = st.floats(0, 1, exclude_min=True)
PAIR = st.tuples(st.integers(1, 512), st.integers(1, 512))
OPTIONAL = ("clock_hz", "mean_w", "idle_w", "peak_w", "usd_per_hour")


@st.composite
def curves(draw):
    sizes = draw(st.lists(RATE, min_size=1, max_size=5, unique=True))
    return Curve(tuple((size, draw(SHARE)) for size in sorted(sizes)))


@st.composite
def chips(draw):
    usable, hbm = sorted((draw(RATE), draw(RATE)))
    return Chip(
        flops_per_s={"float32": draw(RATE)} | draw(st.dictionaries(DTYPES, RATE)),
        vector_flops_per_s=draw(RATE),
        hbm_bytes=hbm,
        usable_bytes=usable,
        hbm_bytes_per_s=draw(RATE),
        on_chip_bytes=draw(RATE),
        launch_s=draw(RATE),
        tile=draw(PAIR),
        unit=draw(PAIR),
        num_cores=draw(st.integers(2, 512)),
        core_bytes_per_s=draw(st.just(0.0) | RATE),
        efficiency=draw(
            st.dictionaries(st.sampled_from(EFFICIENCY_CLASSES), curves(), max_size=3)
        ),
        **{name: draw(st.none() | RATE) for name in OPTIONAL},
    )


@st.composite
def gpus(draw):
    block, shared = sorted(draw(PAIR))
    lanes = draw(PAIR)[0]
    return Gpu(draw(PAIR), lanes, shared_bytes=shared, block_shared_bytes=block)


@st.composite
def levels(draw):
    is_torus = draw(st.booleans())
    return Level(
        name=draw(TEXT),
        kind=Kind.TORUS if is_torus else Kind.SWITCH,
        extents=draw(PAIR) if is_torus else (draw(st.integers(1, 512)),),
        link_bytes_per_s=draw(RATE),
        latency_s=draw(RATE),
        wraps_at=draw(st.integers(0, 16)) if is_torus else 0,
        start_s=draw(st.just(0.0) | RATE),
        switch_gain=draw(st.floats(1, 2)),
    )


@st.composite
def machines(draw):
    name, per_chip = draw(TEXT), draw(st.integers(1, 2))
    # One device that has a chip of its own is a machine of any fabric; two need a pair.
    found = tuple(draw(st.lists(levels(), max_size=2))) if per_chip == 1 else (PAIRS,)
    return Machine(
        name=name,
        title=draw(TEXT),
        chip=draw(chips()),
        levels=found,
        num_devices=per_chip,
        grid=make_grid(name, found, per_chip),
        compiler=draw(st.sampled_from(("tpu", "gpu", "cpu"))),
        topology=draw(st.text(max_size=6)),
        chip_config=draw(st.text(max_size=6)),
        devices_per_chip=per_chip,
        gpu=draw(st.none() | gpus()),
        pue=draw(st.floats(1, 3)),
        sources=draw(st.dictionaries(st.sampled_from(PATHS), TEXT)),
    )


PAIRS = Level("pair", Kind.SWITCH, (2,), 1e9, 1e-6)
PATHS = ("pue", "chip.hbm_bytes", "chip.tile", "chip.flops_per_s.float32")


@settings(max_examples=50)
@given(machines())
def test_what_is_written_reads_back(machine):
    again = parse_machine(machine_toml(machine), "", machine.num_devices)
    assert again == machine
    assert again.sources == machine.sources


@pytest.mark.parametrize("name", preset_names())
def test_presets_read_back_with_their_sources(name):
    machine = load_machine(name, 4)  # the smallest has four
    again = parse_machine(machine_toml(machine), "other", 4)
    assert again == machine
    assert again.sources == machine.sources


def test_what_is_unknown_or_default_is_left_out():
    chip = load_machine("cpu").chip
    text = machine_toml(Machine("mine", "Mine", chip, (), 1))
    table = tomllib.loads(text)
    assert set(table) == {"name", "title", "compiler", "chip"}
    assert not {"peak_w", "usd_per_hour", "tile", "unit"} & set(table["chip"])
