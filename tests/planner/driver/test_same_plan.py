"""One search finds one plan: budgets count work, and real time is only a safety net."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import meshwright as mw
from meshwright.search.assignment.warm import warm
from meshwright.search.work import WorkMeter
from tests.planner.programs import DEEP

TIGHT_S = 0.4
"""A budget that ends the search of `DEEP` in its midst."""

_BUSY = (
    "import time\nends = time.monotonic() + 300\nwhile time.monotonic() < ends: pass"
)


def found(**options):
    fn, args = DEEP
    asked = {"machine": "tpu-v5e", "chips": 8, "budget_s": TIGHT_S}
    return mw.autoplan(fn, args, **(asked | options))


def record(plan):
    """All that a plan and its search say, as text."""
    return plan.to_json() + json.dumps(plan.search.to_json())


@pytest.fixture(scope="module")
def compiled():
    """The solver's code is in numba's cache: a budget counts compiling it."""
    warm(rounds=1)


@pytest.fixture(scope="module")
def plan(compiled):
    return found()


@pytest.fixture
def beside_busy_processes():
    """Four processes that keep all cores of a small host busy."""
    with ExitStack() as stack:
        for _ in range(4):
            child = stack.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            stack.callback(child.kill)
        yield


def slowed(clock):
    """A clock by which everything takes twenty times as long."""
    start = clock()
    return lambda: start + 20 * (clock() - start)


@pytest.fixture(scope="module")
def whole():
    return found(budget_s=60)


def test_the_budget_ends_the_search(plan, whole):
    assert len(plan.search.candidates) < len(whole.search.candidates)


def test_a_slow_clock_finds_the_same_plan(plan, monkeypatch):
    for name in ("monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, slowed(getattr(time, name)))
    assert record(found()) == record(plan)


def test_another_order_of_sets_finds_the_same_plan(plan):
    """Python's hashes of strings, by which sets are ordered, differ between processes."""
    program = (
        "from tests.planner.driver.test_same_plan import found, record\n"
        "print(record(found()))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True
    )
    assert done.stdout.strip() == record(plan), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("budget_s", [TIGHT_S, 3.0])
@pytest.mark.parametrize("search", ["program", "tree"])
def test_busy_processes_beside_it_change_nothing(request, budget_s, search):
    options = {"budget_s": budget_s, "search": search}
    before = record(found(**options))
    request.getfixturevalue("beside_busy_processes")
    assert record(found(**options)) == before


def cut_after(num_readings):
    """A meter's clock that passes the safety net after so many readings."""
    count = iter(range(10**9))
    return lambda: 0.0 if next(count) < num_readings else 1e6


@pytest.mark.parametrize("search", ["program", "tree"])
def test_a_search_that_the_safety_net_cuts_says_so(search, whole, monkeypatch):
    real, clock = WorkMeter.for_budget, cut_after(12)
    monkeypatch.setattr(WorkMeter, "for_budget", lambda end_s: real(end_s, clock))
    plan = found(budget_s=60, search=search)
    assert plan.search.is_cut
    assert len(plan.search.candidates) < len(whole.search.candidates)
    (note,) = plan.search.notes
    assert "cut short after" in note
    assert "another run may find another plan" in note
    assert note in str(plan)
    assert plan.search.to_json()["is_cut"]
    assert plan.search.to_json()["notes"] == [note]


def test_a_search_that_is_not_cut_says_nothing(plan):
    assert not plan.search.is_cut
    assert plan.search.notes == ()


def test_auto_that_the_safety_net_cuts_says_so(monkeypatch):
    fn, args = DEEP
    tactics = [mw.auto(["data"], machine="tpu-v5e")]
    whole = mw.partition(fn, {"data": 8}, tactics).plan(*args)
    assert "cut short" not in str(whole)
    real, clock = WorkMeter.for_budget, cut_after(2)
    monkeypatch.setattr(WorkMeter, "for_budget", lambda end_s: real(end_s, clock))
    short = mw.partition(fn, {"data": 8}, tactics).plan(*args)
    assert "cut short after" in str(short)
