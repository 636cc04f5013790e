"""Machines from presets and from files of the user."""

import tomllib
from importlib import resources

import pytest

import meshwright as mw
from meshwright.errors import MachineError
from meshwright.machine import Gpu, load_machine, parse_machine, preset_names
from meshwright.machine.measured_chip import machine_toml

MINE = """
title = "Mine"
[chip]
vector_flops_per_s = 1e12
hbm_bytes = 16e9
usable_bytes = 15e9
hbm_bytes_per_s = 8e11
on_chip_bytes = 1e8
launch_s = 1e-6
[chip.flops_per_s]
float32 = 1e14
[[levels]]
name = "links"
kind = "torus"
extents = [4, 4]
link_bytes_per_s = 5e10
latency_s = 1e-6
wraps_at = 4
"""


def plain_numbers(table, path=""):
    """Paths of numbers that stand without a source."""
    if isinstance(table, dict):
        if "value" in table:
            return [] if table.get("source") else [path]
        return [p for k, v in table.items() for p in plain_numbers(v, f"{path}.{k}")]
    if isinstance(table, list):
        return [
            p for i, v in enumerate(table) for p in plain_numbers(v, f"{path}[{i}]")
        ]
    return [] if isinstance(table, str) else [path]


@pytest.mark.parametrize("name", preset_names())
def test_every_number_of_a_preset_has_a_source(name):
    text = (resources.files("meshwright.machine") / f"presets/{name}.toml").read_text()
    table = tomllib.loads(text)
    per_chip = table.pop("devices_per_chip", 1)
    assert plain_numbers(table) == []
    machine = load_machine(name, 4 * per_chip)  # the smallest has four
    assert machine.name == name
    assert machine.num_chips == 4
    assert all(machine.sources.values())


def test_levels_that_are_no_tables_are_refused():
    text = "levels = 3\n" + MINE.partition("[[levels]]")[0]
    with pytest.raises(MachineError, match="levels is 3; wanted a list, each item a t"):
        parse_machine(text, "mine", 1)


def test_a_file_of_the_user_needs_no_sources(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    machine = load_machine(path, 16)
    assert (machine.name, machine.title) == ("mine", "Mine")
    assert [dim.extent for dim in machine.grid] == [4, 4]
    assert all(dim.is_ring for dim in machine.grid)
    assert machine.chip.peak_flops_per_s("bfloat16") == 1e14


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hbm_bytes = 16e9\n", "", r"\[chip\] lacks hbm_bytes"),
        ("16e9", "-1", r"chip.hbm_bytes is -1; wanted 0 or more"),
        ("16e9", "'big'", r"chip.hbm_bytes is 'big'; wanted a number"),
        ("hbm_bytes =", "hbm_byte =", r"unknown entry chip.hbm_byte; did you mean"),
        (
            "= 1e8",
            "= 1e8\nefficiency = { again = [[1.0, 0.5]] }",
            r"unknown entry chip.efficiency.again; wanted one of attention, ",
        ),
        (
            "16e9",
            "{ val = 16e9 }",
            r"unknown entry chip.hbm_bytes.val; did you mean 'value'",
        ),
        (
            "[4, 4]",
            "[4.5, 4]",
            r"levels\[0\].extents\[0\] is 4.5; wanted a whole number",
        ),
        ("wraps_at = 4", "wraps_at = 1.5", r"wraps_at is 1.5; wanted a whole number"),
        (
            "title =",
            "devices_per_chip = 1.5\ntitle =",
            r"per_chip is 1.5; wanted a whole",
        ),
        ('"Mine"', "5", r"title is 5; wanted a text in quotes"),
        ('"links"', "[]", r"levels\[0\].name is \[\]; wanted a text in quotes"),
        ("15e9", "17e9", r"usable_bytes 1.7e\+10 exceeds hbm_bytes"),
        ("= 1e8", "= 1e8\nwindow_bytes = 2e8", "window_bytes 2e.08 exceeds on_chip"),
        ("= 1e8", "= 1e8\nplaced_bytes = 2e8", "placed_bytes 2e.08 exceeds on_chip"),
        (
            "= 1e8",
            "= 1e8\nslowest_share = 1.1",
            "slowest_share is 1.1; wanted more than",
        ),
        ("= 1e8", "= 1e8\nwindow_bytes = -1", "window_bytes is -1; wanted 0 or more"),
        ("float32", "float16", r"lacks float32"),
        (
            "float32",
            "float23",
            r"unknown entry chip.flops_per_s.float23; did you mean 'float32'",
        ),
        (
            "hbm_bytes_per_s = ",
            "hbm_bytes_per_s = 0 # ",
            r"per_s is 0; wanted more than 0",
        ),
        ("link_bytes_per_s = ", "link_bytes_per_s = 0 # ", r"wanted more than 0"),
        ("title = ", "pue = 0.2\ntitle = ", r"pue is 0.2; no data centre"),
        ("[4, 4]", "[]", r"extents \(\); wanted one size or more"),
        ('"torus"', '"ring"', r"kind is 'ring'; wanted torus, switch"),
        ("[chip]", "[chips]", r"unknown entry chips; did you mean 'chip'"),
        ("title = ", "title ", r"machine 'mine': .*line 2"),
        (
            "title",
            'compiler = "llvm"\ntitle',
            r"compiler is 'llvm'; wanted plain, tpu, gpu, cpu",
        ),
    ],
)
def test_a_faulty_description_says_what_is_wrong(old, new, words):
    assert old in MINE
    with pytest.raises(MachineError, match=words):
        parse_machine(MINE.replace(old, new, 1), "mine", 4)


WITH_CORES = MINE.replace("launch_s", "num_cores = 132\nlaunch_s")

GPU = """[gpu]
capability = [9, 0]
lanes = 128
shared_bytes = 233472
block_shared_bytes = 232448
"""


def test_a_gpu_may_tell_its_multiprocessors():
    assert parse_machine(MINE, "mine", 4).gpu is None
    found = parse_machine(WITH_CORES + GPU, "mine", 4).gpu
    assert found == Gpu((9, 0), 128, 233472, 232448)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lanes = 128\n", "", r"\[gpu\] lacks lanes"),
        ("lanes", "lane", r"unknown entry gpu.lane; did you mean 'lanes'"),
        ("[9, 0]", "[9]", r"gpu.capability is \[9\]; wanted a list of 2"),
        ("232448", "3e5", r"block_shared_bytes 300000 exceeds shared_bytes 233472"),
    ],
)
def test_faulty_multiprocessors_say_what_is_wrong(old, new, words):
    with pytest.raises(MachineError, match=words):
        parse_machine(WITH_CORES + GPU.replace(old, new), "mine", 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MINE + GPU, "chip.num_cores is missing.*gpu.num_cores before"),
        (WITH_CORES.replace("= 132", "= 0"), "num_cores is 0; wanted more than 0"),
        (
            WITH_CORES.replace("num_cores = 132", "unit = [0, 0]"),
            r"unit is \(0, 0\); wanted rows and columns of 1 or more",
        ),
        (
            MINE.replace("wraps_at", "switch_gain = 0.5\nwraps_at"),
            "switch_gain 0.5; wanted 1 or more",
        ),
    ],
)
def test_faulty_numbers_of_cores_and_switches_say_what_is_wrong(text, words):
    with pytest.raises(MachineError, match=words):
        parse_machine(text, "mine", 4)


def test_an_unknown_machine_says_which_there_are():
    with pytest.raises(MachineError, match=r"'tpu-v5'; did you mean 'tpu-v.*cpu"):
        load_machine("tpu-v5")
    with pytest.raises(MachineError, match=r"from nowhere\.toml: No such file"):
        load_machine("nowhere.toml")


def test_a_file_that_is_no_text_says_so(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MachineError, match=r"machine from .*mine\.toml: 'utf-8' codec"):
        load_machine(path)
    path.write_text(MINE, encoding="utf-8-sig")
    assert load_machine(path, 4).name == "mine"


@pytest.mark.parametrize("chips", ["8", 2.5, True, None])
def test_chips_are_counted_in_whole_numbers(chips):
    with pytest.raises(MachineError, match=r"chips is .*; wanted a whole number"):
        mw.machine("tpu-v5e", chips=chips)


def test_more_chips_than_anybody_has_are_refused_at_once():
    with pytest.raises(MachineError, match=r"h100 has at most 32768 devices"):
        mw.machine("h100", chips=10**9)


def test_more_devices_than_a_machine_has_is_an_error():
    with pytest.raises(MachineError, match=r"mine has at most 16 devices; got 32"):
        parse_machine(MINE, "mine", 32)


def test_a_size_that_there_is_not_names_its_neighbours():
    with pytest.raises(
        MachineError, match=r"no tpu-v5e has 17 devices; near sizes: .*16"
    ):
        load_machine("tpu-v5e", 17)


def test_several_devices_wait_for_the_slowest(tmp_path):
    one, many = (load_machine("h100", n).chip.efficiency for n in (1, 8))
    for name in ("product", "attention", "attention_gradient"):
        assert many[name].share(1e12) == pytest.approx(0.92 * one[name].share(1e12))
    assert many["memory"] == one["memory"]
    text = "slowest_share = 0.9\nhbm_bytes ="
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("hbm_bytes =", text))
    found = load_machine(path, 4)
    assert found.chip.efficiency["product"].share(1e9) == 0.9
    path.write_text(machine_toml(found))
    assert load_machine(path, 4).chip == found.chip


def test_pods_are_joined_by_the_outer_level():
    machine = load_machine("tpu-v5e", 512)
    assert [dim.level.name for dim in machine.grid] == ["dcn", "ici", "ici"]
    assert [dim.extent for dim in machine.grid] == [2, 16, 16]
    assert [dim.is_ring for dim in machine.grid] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "room", "lasting"),
    [
        ("tpu-v4", 128, 96),
        ("tpu-v5e", 112, 96),
        ("tpu-v5p", 48, 48),
        ("tpu-v6e", 96, 96),
    ],
)
def test_what_of_scratch_memory_holds_values(name, room, lasting):
    chip = load_machine(name, 1).chip
    assert (chip.room_bytes, chip.lasting_bytes) == (room * 2**20, lasting * 2**20)


def test_three_quarters_of_it_do_where_nobody_says():
    chip = load_machine("h100", 1).chip
    assert chip.room_bytes == chip.lasting_bytes == 0.75 * chip.on_chip_bytes
