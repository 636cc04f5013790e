"""The frontier of time and memory, compared with enumeration and with known plans."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.planner.solve.frontier import frontier
from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum
from meshwright.planner.solve.optimum import Optimum
from meshwright.search.work import WorkMeter
from tests.planner.integer_program.test_integer_program import SMALL, all_choices
from tests.planner.programs import DEEP, LARGE, MESH, PAIR


def solve_within(pricer, limit, known=None):
    starts = () if known is None else (known.choices,)
    return find_optimum(pricer, limit, SolveBudget(100, WorkMeter(), 20.0), starts)


def found_for(pricer, value_of):
    """The fastest plan and all plans of the frontier."""
    whole = solve_within(pricer, None)
    solve = partial(solve_within, pricer)
    return [whole, *frontier(whole, solve, value_of, lambda: False)]


def figures(pricer):
    """Seconds and peak bytes of all choices."""
    return [
        (pricer.seconds(choices), pricer.peak_bytes(choices))
        for choices in all_choices(pricer)
    ]


def test_the_smallest_plan_of_a_small_program_is_that_of_enumeration():
    found = found_for(SMALL, lambda seconds, num_bytes: num_bytes)
    assert min(p.bytes for p in found) == min(b for _, b in figures(SMALL))
    assert found[-1].bytes < found[0].bytes


@pytest.mark.parametrize("weight", [0.1, 0.5, 1.0, 3.0])
def test_the_best_product_of_a_small_program_is_that_of_enumeration(weight):
    """Within 5 %, since gains below 1 % are not pursued."""

    def value(seconds, num_bytes):
        return seconds * num_bytes**weight

    best = min(value(s, b) for s, b in figures(SMALL) if s < math.inf)
    found = min(value(p.seconds, p.bytes) for p in found_for(SMALL, value))
    assert best <= found * (1 + 1e-9) <= best * 1.05


SIZES = st.lists(st.floats(1.0, 1e12), min_size=1, max_size=20)


def known(sizes):
    """A solver that knows plans of these sizes, the larger the faster."""

    def answer(limit, start):
        within = [b for b in sizes if b <= limit] or [min(sizes)]
        return Optimum((), 1 / max(within), max(within), 0.0)

    return answer


@given(SIZES)
def test_the_smallest_plan_found_is_within_3_percent_of_the_smallest(sizes):
    first = known(sizes)(math.inf, None)
    found = [
        p.bytes for p in frontier(first, known(sizes), lambda s, b: b, lambda: False)
    ]
    assert min([*found, first.bytes]) <= min(sizes) / 0.97
    assert all(num_bytes < first.bytes for num_bytes in found)


@given(SIZES)
def test_nothing_is_solved_if_the_objective_ignores_memory(sizes):
    first = known(sizes)(math.inf, None)

    def refuse(limit, start):
        raise AssertionError("solved")

    assert not list(frontier(first, refuse, lambda s, b: s, lambda: False))


@given(SIZES, st.integers(0, 5))
def test_no_solve_begins_after_the_time_is_over(sizes, most):
    limits = []

    def answer(limit, start):
        limits.append(limit)
        return known(sizes)(limit, start)

    first = known(sizes)(math.inf, None)
    list(frontier(first, answer, lambda s, b: b, lambda: len(limits) >= most))
    assert len(limits) <= most


def search_for(program, objective, budget_s):
    fn, args = program
    return mw.autoplan(
        fn, args, machine="tpu-v5e", mesh=MESH, objective=objective, budget_s=budget_s
    ).search


@pytest.fixture(scope="module")
def small():
    """A search for little memory, with arrays too large for on-chip memory."""
    return search_for(LARGE, "memory", 20)


def names_of_experts(search):
    return {c.name for c in search.candidates if not c.name.startswith("auto")}


def test_the_plan_returned_takes_the_least_memory_of_all_candidates(small):
    for search in (small, search_for(PAIR, "memory", 3)):
        runs = [c for c in search.candidates if not c.why_not]
        least = min(c.peak_memory_bytes for c in runs)
        assert search.candidates[0].peak_memory_bytes == least
        assert names_of_experts(search)


def test_a_search_for_little_memory_beats_all_experts_and_the_fastest_plan(small):
    best, *others = (c for c in small.candidates if not c.why_not)
    assert best.name == "auto"
    assert all(best.peak_memory_bytes < c.peak_memory_bytes for c in others)
    assert len(small.frontier) > 1


def test_a_weighted_objective_finds_a_plan_that_no_candidate_beats(small):
    both = search_for(DEEP, {"step_time": 1, "memory": 2}, 12).candidates[0]

    def weighted(c):
        return c.step_time_s * c.peak_memory_bytes**2

    seen = [c for c in small.candidates if not c.why_not]
    assert weighted(both) <= min(map(weighted, seen))
    quick = min(seen, key=lambda c: c.step_time_s)
    assert both.peak_memory_bytes < quick.peak_memory_bytes


def test_no_candidate_beats_a_plan_of_the_frontier(small):
    found = [(c.step_time_s, c.peak_memory_bytes) for c in small.frontier]
    assert found == sorted(found)
    assert [b for _, b in found] == sorted({b for _, b in found}, reverse=True)
    for c in small.candidates:
        if not c.why_not:
            seconds, num_bytes = c.step_time_s, c.peak_memory_bytes
            assert any(s <= seconds and b <= num_bytes for s, b in found)
