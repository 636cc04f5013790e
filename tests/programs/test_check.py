"""Every program, under every strategy that applies, gives the one-device numbers.

A light program's last strategy runs with the quick tests, all others with the slow.
"""

from functools import cache

import pytest

import meshwright as mw
from tests.programs.catalogue import MESH, PROGRAMS, tactics_of

pytestmark = pytest.mark.filterwarnings("ignore::meshwright.MeshwrightWarning")
"""Numbers are compared here; a strategy may leave much of the work whole."""

CASES = [
    pytest.param(
        program,
        strategy,
        id=f"{program.name}, {strategy}",
        marks=[pytest.mark.slow]
        if program.heavy or strategy != program.strategies[-1]
        else [],
    )
    for program in PROGRAMS
    for strategy in program.strategies
]


@cache
def built(build):
    """One program for all its strategies, so that the original compiles once."""
    return build()


@pytest.mark.parametrize(("program", "strategy"), CASES)
def test_the_partitioned_program_gives_the_original_results(program, strategy):
    fn, args = built(program.build)
    step = mw.partition(fn, MESH, tactics_of(strategy, program.inputs))
    shardings = [leaf.spec for leaf in step.plan(*args).inputs]
    assert any(axes for spec in shardings for axes in spec), "nothing is cut"
    report = step.check(*args)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=[p.name for p in PROGRAMS])
def test_no_primitive_of_these_programs_lacks_a_rule(program):
    fn, args = built(program.build)
    tactics = tactics_of("dp", program.inputs)
    assert mw.partition(fn, MESH, tactics).plan(*args).whole == ()
