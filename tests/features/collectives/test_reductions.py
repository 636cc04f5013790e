"""Reduction programs with prices, and `meshwright collectives`."""

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

import meshwright as mw
from meshwright.errors import CollectiveError, MachineError

P2_A100 = Path("benchmarks/machines/p2-a100.toml")
P2_V100 = Path("benchmarks/machines/p2-v100.toml")
BEST = "reduce_scatter inside 1; all_reduce parallel 1 under 0; all_gather inside 1"


def found(hierarchy, matrix, axes, machine=P2_A100, **options):
    return mw.reductions(hierarchy, matrix, axes, machine=machine, **options)


def test_across_two_nodes_scattering_inside_them_is_fastest():
    """P2 measures 1.77x for this case."""
    programs = found([2, 16], [[1, 2], [2, 8]], [1])
    assert str(programs[0]) == BEST
    assert programs.speed_up == pytest.approx(1.83, abs=0.02)


def test_within_one_node_plain_all_reduce_is_fastest():
    for matrix, axes in (([[2, 1], [1, 16]], [1]), ([[1, 4], [2, 4]], [0])):
        assert str(found([2, 16], matrix, axes)[0]) == "all_reduce inside 0"


def test_programs_are_sorted_and_faster_programs_are_not_left_out():
    programs = found([4, 8], [[2, 4], [2, 2]], [0], P2_V100)
    seconds = [each.seconds for each in programs]
    assert seconds == pytest.approx(sorted(seconds), rel=1e-8)
    assert len(programs) == 47


def test_of_programs_that_take_equally_long_the_shorter_comes_first():
    for first, second in pairwise(found([2, 16], [[1, 2], [2, 8]], [1])):
        if second.seconds == pytest.approx(first.seconds, rel=1e-12):
            assert len(first.program) <= len(second.program)


@pytest.mark.parametrize("goal", ["reduce_scatter", "all_gather"])
def test_other_goals_have_programs_with_prices(goal):
    programs = found([4, 16], [[2, 1], [2, 16]], [1], goal=goal)
    assert len(programs) == 3
    plain = programs.plain.seconds
    assert programs[0].seconds <= plain


def test_a_case_of_three_levels_takes_a_fraction_of_a_second():
    start = time.process_time()
    assert len(found([4, 4, 4], [[4, 4, 4]], [0], "tpu-v4")) == 662
    assert time.process_time() - start < 0.5


def test_an_axis_of_one_device_needs_no_program():
    programs = found([2, 16], [[1, 1], [2, 16]], [0])
    assert [each.program for each in programs] == [()]
    assert programs[0].seconds == 0.0
    assert programs.speed_up == 1.0


def test_a_wrong_program_is_refused_by_its_step():
    programs = found([2, 16], [[2, 16]], [0])
    programs.check(BEST)
    with pytest.raises(CollectiveError, match="step 2: all_gather inside 1"):
        programs.check("reduce inside 0; all_gather inside 1")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"goal": "all_to_all"}, "goal is 'all_to_all'; there are all_reduce"),
        ({"library": "star"}, "library is 'star'; there are levels, ring, tree"),
        ({"num_bytes": 0}, "num_bytes is 0"),
        ({"reduce_axes": [2]}, "has 2; the placement has axes 0 to 0"),
        ({"reduce_axes": [0, 0]}, "names an axis twice"),
        ({"reduce_axes": 0}, "reduce_axes is 0; wanted a list of ints"),
        ({"reduce_axes": ["data"]}, "has 'data'; wanted ints"),
    ],
)
def test_bad_options_say_what_is_wanted(options, why):
    given = {"reduce_axes": [0], "machine": P2_A100} | options
    with pytest.raises(CollectiveError, match=why):
        mw.reductions([2, 16], [[2, 16]], **given)


def test_a_hierarchy_of_another_machine_says_so():
    with pytest.raises(MachineError, match="hierarchy 4x16 does not match h100"):
        found([4, 16], [[4, 16]], [0], "h100")


def test_print_and_json():
    programs = found([2, 16], [[2, 16]], [0])
    text = str(programs)
    assert text.startswith(
        "47 programs for all_reduce over axes 0 of [[2 16]] on p2-a100"
    )
    assert text.endswith("and 37 more")
    data = json.loads(programs.to_json())
    assert data["programs"][0]["program"] == BEST
    assert data["library"] == "ring"
