"""The search over screened programs, of which few are compiled."""

import dataclasses

import pytest

from meshwright.features.tune.layouts.problem import choices_of
from meshwright.features.tune.layouts.screened_search import ScreenedSearch
from tests.features.tune.layouts.fake_judge import FakeJudge, make_gains, make_search


def test_auto_arguments_that_make_the_same_program_are_not_compiled(program_and_sites):
    program, sites = program_and_sites
    for auto, count in ((1.0, 1), (1.1, 2)):
        judge = FakeJudge(make_gains(sites, (1.0,)), auto=auto)
        search = make_search(judge, sites, program)
        default = search._ask((), False)
        assert search._auto(default).cost == 100 * auto
        assert judge.judged == count


def test_a_program_of_known_kernels_is_taken_without_being_compiled(program_and_sites):
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (0.5, 0.6)))
    search = make_search(judge, sites, program)
    alone = []
    for value, minor, _ in judge.gains:
        site = next(s for s in sites.values() if value in s.values)
        best = next(c for c in choices_of(site) if c.order[-1] == minor)
        search._ask((best,), False)
        alone.append(best)
    both = tuple(sorted(alone, key=lambda c: c.site))
    screens = search.screens[False]
    assert screens.is_known(both)
    assert screens.cost(both) == screens.least(both) == pytest.approx(110)
    judged = judge.judged
    rounds = ScreenedSearch(screens, search.model, lambda state: None, 0, 8, 4)
    rounds.run(200.0)
    assert rounds.best == both
    assert judge.judged == judged


def test_screens_without_the_kernels_of_the_compiled_program_are_only_guesses(
    program_and_sites,
):
    """Memories of a large program may be assigned otherwise when it is screened."""
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (0.5, 1.0)))
    screen = judge.screen
    judge.screen = lambda question: [
        dataclasses.replace(kernel, key=f"{kernel.key} in main memory")
        for kernel in screen(question)
    ]
    found = make_search(judge, sites, program).run()
    assert found.charged == 150


def test_a_gain_that_moves_into_copies_without_an_estimate_is_refused(
    program_and_sites,
):
    program, sites = program_and_sites
    gains = make_gains(sites, (0.5, 1.0))
    for charge, is_taken in ((0.0, True), (0.2, False)):
        judge = FakeJudge(gains, hidden=(gains[0][0],))
        found = make_search(judge, sites, program, charge=charge).run()
        assert bool(found.best) is is_taken


def test_shares_say_what_each_layout_saves(program_and_sites):
    program, sites = program_and_sites
    found = make_search(
        FakeJudge(make_gains(sites, (0.5, 0.8))), sites, program, budget=60, losses=40
    ).run()
    shares = sorted(found.gains.values(), reverse=True)
    assert shares[:2] == pytest.approx([50 / 130, 20 / 130], rel=0.05)
