"""Inference in closed form, against Pope et al.'s tables and against lowered layers."""

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from benchmarks.papers.inference_layouts import (
    Pair,
    best_over,
    best_x,
    cache_bytes,
    floor_of,
    gathered,
    layouts,
    longest_context,
    mfu_of,
    moved_bytes,
    network_bytes_per_s,
    pass_s,
    stationary,
    torus_of,
)
from benchmarks.papers.published import (
    PALM_62B,
    PALM_540B,
    TABLE_1,
    TABLES_2_3,
    half_digit,
)
from meshwright.errors import MachineError
from meshwright.machine.placement import place_mesh
from meshwright.predict.links.collective import COLLECTIVE_S

WITHIN = 0.03
PALM = Pair(PALM_540B.d_model, PALM_540B.d_ff)
CUBE = (4, 4, 4)

TOKENS = st.integers(1, 2**22)
CHIPS = st.sampled_from([4, 16, 64, 256, 1024])


def named(rows):
    return [pytest.param(row, id=row.name) for row in rows]


def sent(pair, tokens, torus):
    """Bytes of each layout, as the paper counts them."""
    found = layouts(pair, tokens, torus)
    return {name: moved_bytes(transfers) for name, transfers in found.items()}


# -- the published tables ---------------------------------------------------------------


def test_parameters_follow_from_the_sizes():
    """540.35 and 62.50 billion; 64 heads in place of 48 add 18 billion."""
    assert PALM_540B.parameters == pytest.approx(540.35e9, rel=1e-4)
    assert PALM_62B.parameters == pytest.approx(62.50e9, rel=1e-4)
    added = replace(PALM_540B, heads=64).parameters - PALM_540B.parameters
    assert round(added / 1e9) == 18


def test_the_machine_is_that_of_the_paper():
    """275 TFLOP/s, 32 GiB at 1200 GB/s, 270 GB/s of links in a cube."""
    machine = mw.machine("tpu-v4", chips=64)
    chip = machine.chip
    assert torus_of(machine) == CUBE
    assert network_bytes_per_s(machine) == 270e9
    assert (chip.half_flops_per_s, chip.hbm_bytes_per_s) == (275e12, 1200e9)
    assert chip.hbm_bytes == 32 * 2**30


@pytest.mark.parametrize("row", TABLE_1, ids=lambda r: f"{r.name}, {r.batch}")
def test_table_1_longest_contexts(row):
    decoder = replace(PALM_540B, kv_heads=row.kv_heads, d_head=row.d_head)
    held = cache_bytes(decoder, row.batch, 64, row.cut)
    free = 0.3 * mw.machine("tpu-v4", chips=64).chip.hbm_bytes
    printed = float(row.context)
    rounding = half_digit(row.context) / printed
    assert longest_context(free, held) == pytest.approx(printed, rel=WITHIN)
    assert rounding < WITHIN  # so that the tolerance is not all rounding


@pytest.mark.parametrize("row", named(TABLES_2_3))
def test_tables_2_and_3_time_from_share_of_peak_and_back(row):
    machine = mw.machine("tpu-v4", chips=row.chips)
    job = (row.decoder.parameters, row.passes.tokens, machine)
    seconds, percent = float(row.time_s), float(row.mfu_percent)
    assert pass_s(*job, percent / 100) == pytest.approx(seconds, rel=WITHIN)
    assert 100 * mfu_of(*job, seconds) == pytest.approx(percent, rel=WITHIN)


@pytest.mark.parametrize("row", named(TABLES_2_3))
def test_tables_2_and_3_agree_within_their_last_digits(row):
    """A time that rounds to the paper's has a share of peak that rounds to the paper's.

    Parameters are those of the models' names; with the 62.50 billion that there are, one
    row of eight would miss by 0.05 points.
    """
    machine = mw.machine("tpu-v4", chips=row.chips)
    parameters = round(row.decoder.parameters, -9)
    seconds, off_s = float(row.time_s), half_digit(row.time_s)
    low, high = (
        100 * mfu_of(parameters, row.passes.tokens, machine, s)
        for s in (seconds + off_s, seconds - off_s)
    )
    percent, off = float(row.mfu_percent), half_digit(row.mfu_percent)
    assert low < percent + off
    assert percent - off < high


@pytest.mark.parametrize("row", named(TABLES_2_3))
def test_measured_times_are_above_the_lower_bound(row):
    floor = floor_of(row.decoder, row.passes, mw.machine("tpu-v4", chips=row.chips))
    assert 0.2 < floor.seconds / float(row.time_s) < 1


@pytest.mark.parametrize("row", named(r for r in TABLES_2_3 if r.chips >= 16))
def test_the_papers_layout_sends_the_fewest_bytes(row):
    """On 8 chips the 2-D layout sends more than 1-D, as the paper's condition says."""
    machine = mw.machine("tpu-v4", chips=row.chips)
    pair = Pair(row.decoder.d_model, row.decoder.d_ff, row.passes.weight_bytes)
    tokens = row.passes.batch * row.passes.new
    moved = sent(pair, tokens, torus_of(machine))
    assert moved[row.passes.layout] == min(moved.values())


def test_8_bit_weights_save_about_the_measured_time():
    """36.9 ms a token in 16 bits, 28.5 ms in 8, batch 64: section 4.4."""
    machine = mw.machine("tpu-v4", chips=64)
    slim = next(r for r in TABLES_2_3 if r.name == "540B fast decode").passes
    wide = replace(slim, weight_bytes=2)
    saved_s = floor_of(PALM_540B, wide, machine).memory_s
    saved_s -= floor_of(PALM_540B, slim, machine).memory_s
    measured_s = 64 * (36.9e-3 - 28.5e-3)
    assert 0.8 * measured_s < saved_s < measured_s  # as memory is never read at peak


def test_sizes_below_one_and_unknown_layouts_are_refused():
    passes = TABLES_2_3[0].passes
    with pytest.raises(MachineError, match="no layout 'WS 3D'; there are WS 1D, WS 2D"):
        replace(passes, layout="WS 3D")
    with pytest.raises(MachineError, match="batch is 0; wanted at least 1"):
        replace(passes, batch=0)
    with pytest.raises(MachineError, match="d_ff is -1"):
        replace(PALM, d_ff=-1)


# -- where one layout passes another -----------------------------------------------------


@given(CHIPS, TOKENS)
def test_the_best_2d_cut_is_half_the_root_where_f_is_4_e(chips, tokens):
    x = best_x(PALM, chips)
    assert x == pytest.approx(0.5 * math.sqrt(chips))
    splits = [2**i for i in range(1, chips.bit_length() - 1)]
    least = min(
        splits, key=lambda s: moved_bytes(stationary(PALM, tokens, s, chips // s))
    )
    assert least == max(x, 2)
    if x >= 2:
        root = 8 * tokens * PALM.d_model / math.sqrt(chips) * PALM.value_bytes
        moved = moved_bytes(stationary(PALM, tokens, int(x), int(chips / x)))
        assert moved == pytest.approx(root)


@given(st.sampled_from([4, 8, 16, 32, 64, 128, 256]), TOKENS)
def test_2d_beats_1d_beyond_the_square_of_f_over_e(chips, tokens):
    flat = moved_bytes(stationary(PALM, tokens, 1, chips))
    splits = [2**i for i in range(1, chips.bit_length() - 1)]
    square = min(moved_bytes(stationary(PALM, tokens, s, chips // s)) for s in splits)
    assert (square < flat) == (math.sqrt(chips) > PALM.d_ff / PALM.d_model)


@given(TOKENS, CHIPS, st.sampled_from([1, 2]))
def test_the_best_power_of_two_is_next_to_the_closed_form(tokens, chips, weight_bytes):
    """The best power of two between 1 and n is a neighbour of N."""
    pair = replace(PALM, weight_bytes=weight_bytes)
    over = best_over(pair, tokens, chips)
    choices = [2**i for i in range(1, chips.bit_length() - 1)]
    best = min(choices, key=lambda c: moved_bytes(gathered(pair, tokens, chips, c)))
    nearest = min(max(over, choices[0]), choices[-1])
    assert nearest / math.sqrt(2) <= best * 1.0001
    assert best <= nearest * math.sqrt(2) * 1.0001


@given(TOKENS, CHIPS)
def test_no_gather_sends_less_than_the_closed_form(tokens, chips):
    least = 4 * PALM.d_model * math.sqrt(tokens * PALM.d_ff / chips) * 2
    for over in (2**i for i in range(1, chips.bit_length() - 1)):
        moved = moved_bytes(gathered(PALM, tokens, chips, over))
        assert moved >= least * (1 - 1e-9)


def test_gathering_over_all_chips_beats_stationary_weights_from_2_f_tokens_on_64_chips():
    """The crossing is between batches 64 and 128 of 2048 tokens; measured, twice that."""
    even = sent(PALM, 2 * PALM.d_ff, CUBE)
    assert even["WG XYZ"] == pytest.approx(even["WS 2D"])
    small, large = (sent(PALM, batch * 2048, CUBE) for batch in (64, 128))
    assert small["WG XYZ"] > small["WS 2D"]
    assert large["WG XYZ"] < large["WS 2D"]


def test_more_tokens_gather_weights_over_more_chips():
    best = []
    for i in range(8, 24):
        moved = sent(PALM, 2**i, CUBE)
        best.append(min(moved, key=moved.__getitem__))
    assert list(dict.fromkeys(best)) == ["WS 2D", "WG X", "WG XY", "WG XYZ"]


# -- the same layouts, partitioned -------------------------------------------------------

MESH = {"x": 4, "y": 4, "z": 4}
TOKENS_THERE = 2048


def weights_cut(x, yz):
    """Weights stored [E by x, F by y and z]."""
    by_x = [mw.shard({"up": 0, "down": 1}, axis=a) for a in x]
    return by_x + [mw.shard({"up": 1, "down": 0}, axis=a) for a in yz]


def tokens_cut(*axes):
    return [mw.shard({"tokens": 0}, axis=a) for a in axes]


STORED = weights_cut("x", "zy")  # what is gathered first is cut last
SCHEDULES = {
    "WS 1D": weights_cut("", "xyz"),
    "WS 2D": STORED,
    "WG X": tokens_cut("x") + STORED,
    "WG XY": tokens_cut("x", "y") + STORED,
    "WG XYZ": tokens_cut("x", "y", "z") + STORED,
}


@cache
def plan_of(layout):
    def layer(tokens, up, down):
        return jax.nn.gelu(tokens @ up) @ down

    e, f = PALM.d_model, PALM.d_ff
    sizes = ((TOKENS_THERE, e), (e, f), (f, e))
    shapes = [jax.ShapeDtypeStruct(size, jnp.bfloat16) for size in sizes]
    step = mw.partition(layer, MESH, SCHEDULES[layout], gather="at_use")
    return step.plan(*shapes)


def received(transfers):
    return sum(each.received_bytes for each in transfers)


@pytest.mark.parametrize("layout", SCHEDULES)
def test_a_partitioned_layer_receives_the_bytes_of_the_closed_form(layout):
    """An all-reduce counts twice: it is a reduce-scatter and an all-gather."""
    total = 0.0
    for found in plan_of(layout).collectives:
        chips = math.prod(MESH[axis] for axis in found.axes)
        times = 2 if found.kind == "all_reduce" else 1
        total += times * found.bytes * (chips - 1) / chips
    wanted = received(layouts(PALM, TOKENS_THERE, CUBE)[layout])
    assert total == pytest.approx(wanted, rel=1e-12)


def test_our_seconds_are_those_bytes_over_the_links_of_their_axes():
    """The paper gives each collective all six links of a chip, we the links of its axes."""
    machine = mw.machine("tpu-v4", chips=64)
    placement = place_mesh(mw.Mesh(MESH), machine)
    ours_s = sum(
        COLLECTIVE_S[found.kind](found.bytes, placement.of(found.axes))
        for found in plan_of("WS 2D").collectives
    )
    outer, inner = layouts(PALM, TOKENS_THERE, CUBE)["WS 2D"]  # over y and z, over x
    wanted_s = outer.received_bytes / 180e9 + inner.received_bytes / 90e9
    assert ours_s == pytest.approx(wanted_s, rel=0.05)  # and some hops
