"""Equal numbers: generated programs under generated schedules."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace

import jax
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.case import Case, draw_case
from tests.fuzz.check import run_case
from tests.fuzz.program import FLAT, REGIONS
from tests.fuzz.shrink import shrink

CASES = 200
SHARES = 8  # so that the workers of pytest-xdist divide them
QUICK = 1  # shares of the quick suite; the others are slow tests


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(i, marks=pytest.mark.slow if i >= QUICK else ())
        for i in range(SHARES)
    ],
)
def test_partitioned_random_programs_give_the_original_results(share: int):
    seen: Counter[str] = Counter()

    @seed(share)
    @settings(
        max_examples=CASES // SHARES,
        phases=(Phase.generate,),  # cases shrink by their text, see `report`
        derandomize=False,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def equal(rng: random.Random) -> None:
        case = draw_case(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = run_case(case)
        seen[outcome.verdict] += 1
        assert not outcome.is_failure, report(case)

    equal()
    jax.clear_caches()
    # In the long run 95 of 100 are; few cases scatter, and fewer say that draws fail.
    assert seen["equal"] >= 0.8 * seen.total(), seen


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_a_loop_in_time_gives_the_results_of_random_programs(count: int):
    rng, seen = random.Random("in time"), Counter[str]()
    while seen["equal"] < count // 3 or seen.total() < count:
        case = draw_case(rng)
        if len(case.mesh) < 2:
            continue
        case = replace(case, in_time=case.mesh[-1][0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = run_case(case)
        seen[outcome.verdict] += 1
        assert not outcome.is_failure, report(case)
    jax.clear_caches()


def report(case: Case) -> str:
    """The smallest case that fails in the same way, as source text."""
    small = shrink(case, attempts=40)
    return f"{run_case(small).detail}\n\n{small}"


def test_random_programs_reach_every_family_of_ops():
    missing = {f.__name__ for f, _ in FLAT} | {f.__name__ for f in REGIONS}
    for number in range(500):
        missing -= set(draw_case(random.Random(f"families:{number}")).program.families)
        if not missing:
            break
    assert not missing


def test_a_seed_gives_the_same_case_each_time():
    assert draw_case(random.Random("7")) == draw_case(random.Random("7"))
