"""`auto` among other tactics: it keeps their decisions and takes the open ones."""

import pytest

import meshwright as mw
from meshwright.errors import MeshwrightError
from tests.planner.driver.test_autoplan import arrays
from tests.planner.programs import DEEP, LARGE, MESH, MLP

MACHINE = "tpu-v5e"


def test_decisions_of_earlier_tactics_are_kept():
    fn, args = DEEP
    data = mw.data_parallel("data")
    before = mw.partition(fn, MESH, [data]).decide(*args).work.state
    tactics = [data, mw.auto("model", machine=MACHINE)]
    after = mw.partition(fn, MESH, tactics).decide(*args).work.state
    for old, new in zip(before.factor_of, after.factor_of, strict=True):
        assert old.items() <= new.items()
        assert {axis for axis in new if axis not in old} <= {"model"}
    assert any("model" in cut for cut in after.factor_of)


def test_auto_on_top_of_data_parallelism_is_no_slower():
    fn, args = LARGE
    tactics = [mw.data_parallel("data")]
    without = mw.partition(fn, MESH, tactics).plan(*args)
    tactics += [mw.auto(["model"], machine=MACHINE)]
    found = mw.partition(fn, MESH, tactics).plan(*args)
    times = [p.on(MACHINE, donate_state=True).step_time_s for p in (found, without)]
    assert times[0] <= times[1]


def test_a_step_under_auto_equals_the_original():
    fn, args = MLP
    tactics = [mw.auto(["data", "model"], machine=MACHINE)]
    assert mw.partition(fn, MESH, tactics).check(*arrays(args)).ok


def test_auto_prints_as_it_is_called():
    assert (
        str(mw.auto("model", machine=MACHINE)) == "auto(['model'], machine='tpu-v5e')"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": []}, "at least one axis"),
        ({"axes": ["modle"]}, "modle"),
        ({"axes": "model", "budget_s": -1}, "above 0"),
        ({"axes": "model", "machine": "tpu-v99"}, "tpu-v99"),
        ({"axes": "model", "memory": "1 KiB"}, "finds no plan that fits"),
    ],
)
def test_a_wrong_option_is_refused_with_its_reason(options, words):
    fn, args = MLP
    options = {"machine": MACHINE} | options
    axes = options.pop("axes")
    with pytest.raises(MeshwrightError, match=words):
        mw.partition(fn, MESH, [mw.auto(axes, **options)]).plan(*args)
