"""The search for layouts, with judges whose best layouts are known."""

import itertools
import json

import pytest

from meshwright.errors import CompilerError, PlanError, SearchError
from meshwright.features.tune.layouts.gain_model import GainModel
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.layouts.kernel_costs import Example
from meshwright.features.tune.layouts.kernels import HloKernel
from meshwright.features.tune.layouts.layout_search import SearchOptions
from meshwright.features.tune.layouts.problem import LayoutChoice, choices_of
from meshwright.features.tune.layouts.screened_search import pruned
from meshwright.features.tune.layouts.screens import Screens
from meshwright.features.tune.layouts.verdict import (
    VERDICTS,
    Verdict,
    failed,
    plain_verdict,
)
from tests.features.tune.layouts.fake_judge import FakeJudge, make_gains, make_search


def test_the_known_best_layouts_are_found_with_screens(program_and_sites):
    program, sites = program_and_sites
    gains = make_gains(sites, (1.0, 0.5, 1.0, 0.7))
    judge = FakeJudge(gains)
    found = make_search(judge, sites, program, budget=60, losses=40).run()
    assert found.verdict.cost == pytest.approx(320)
    assert judge.judged == found.judged <= 60
    assert found.screened == judge.num_screened


def test_choices_that_save_nothing_are_dropped():
    saves, idle, unknown = (LayoutChoice(name, (1, 0)) for name in ("a", "b", "c"))

    def screen(state):
        keys = ("fast" if saves in state else "slow", f"new {unknown in state}")
        return [HloKernel(k, k, 1, "", {}, (5.0, 5.0), False, 0.0) for k in keys]

    screens = Screens(screen, 0.0)
    known = {"fast": 10.0, "slow": 20.0, "new True": 1.0}
    screens.costs.learn(
        Example(key, "", (5.0, 5.0), cost) for key, cost in known.items()
    )
    # The program without `unknown` has a kernel that was never compiled.
    assert pruned(screens, (saves, idle, unknown)) == (saves, unknown)


def test_the_known_best_layouts_are_found_without_screens(program_and_sites):
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (0.5, 1.0)), screens=False)
    found = make_search(judge, sites, program, budget=60, losses=60).run()
    assert found.verdict.cost == pytest.approx(150)
    assert found.judged <= 60


def test_the_better_of_default_and_auto_is_the_baseline(program_and_sites):
    program, sites = program_and_sites
    for auto, name in ((0.9, "auto"), (1.1, "default")):
        judge = FakeJudge(make_gains(sites, (1.0, 1.0)), auto=auto)
        found = make_search(judge, sites, program, budget=8).run()
        assert found.baseline == name
        assert found.verdict.cost <= min(found.default.cost, found.auto.cost)


def test_where_the_default_is_best_it_is_said_before_the_budget_is_spent(
    program_and_sites,
):
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (1.0, 1.0, 1.0)))
    found = make_search(judge, sites, program, budget=60, losses=4).run()
    assert found.best == ()
    assert found.stopped == "stalled"
    assert found.judged < 20


def test_a_gain_that_the_last_measurement_does_not_repeat_keeps_the_default(
    program_and_sites,
):
    program, sites = program_and_sites
    for last_cost, is_kept in ((101.0, False), (99.0, False), (60.0, True)):
        judge = FakeJudge(make_gains(sites, (0.5,)), screens=False)
        judge.confirm = lambda question, cost=last_cost: Verdict(cost, spread=0.02)
        found = make_search(judge, sites, program, losses=60).run()
        assert bool(found.best) is is_kept
        assert found.verdict.cost == (last_cost if is_kept else found.base.cost)


def test_programs_that_do_not_compile_are_survived_and_listed(program_and_sites):
    program, sites = program_and_sites
    gains = make_gains(sites, (0.5, 0.6))
    judge = FakeJudge(gains, fails=(gains[0][0],))
    found = make_search(judge, sites, program).run()
    assert found.verdict.cost == pytest.approx(160)
    assert set(found.failures) == {"it does not compile"}


def test_a_program_that_does_not_compile_at_all_is_an_error(program_and_sites):
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (0.5,)))
    judge.judge = lambda question: failed("no such op")
    with pytest.raises(CompilerError, match="does not compile: no such op"):
        make_search(judge, sites, program).run()


def test_ctrl_c_keeps_the_best_so_far(program_and_sites):
    program, sites = program_and_sites
    judge = FakeJudge(make_gains(sites, (0.5, 0.9, 0.9)))
    whole = make_search(FakeJudge(judge.gains), sites, program).run()
    judge.stop_at = 5
    found = make_search(judge, sites, program).run()
    assert found.stopped == "interrupted"
    assert whole.verdict.cost <= found.verdict.cost < found.base.cost


def test_an_interrupted_search_goes_on_from_its_journal(program_and_sites, tmp_path):
    program, sites = program_and_sites
    gains = make_gains(sites, (0.5, 0.9, 0.8))
    whole = make_search(FakeJudge(gains), sites, program).run()
    path = tmp_path / "verdicts.jsonl"
    judge = FakeJudge(gains)
    judge.stop_at = 4
    make_search(judge, sites, program, journal=Journal(path)).run()
    with path.open("a") as file:
        file.write('{"key": "cut sho')  # as a killed process leaves it
    again = FakeJudge(gains)
    found = make_search(again, sites, program, journal=Journal(path)).run()
    assert (found.best, found.verdict.cost) == (whole.best, whole.verdict.cost)
    assert again.judged < whole.judged


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("shopping\n")
    with pytest.raises(PlanError, match=r"line 1 of .*notes\.txt is no verdict"):
        Journal(path)


def test_the_same_seed_judges_the_same_programs(program_and_sites):
    program, sites = program_and_sites
    histories = []
    for _ in range(2):
        journal = Journal()
        judge = FakeJudge(make_gains(sites, (0.7, 0.8)))
        make_search(judge, sites, program, journal=journal).run()
        histories.append(list(journal.verdicts))
    assert histories[0] == histories[1]


def test_a_budget_without_room_for_a_search_is_refused():
    with pytest.raises(SearchError, match="a budget of 3 programs; wanted more than 3"):
        SearchOptions(3, 0)


def test_a_verdict_reads_back_what_it_wrote():
    verdict = Verdict(
        2.0,
        0.1,
        in_layouts=((1, 0), None),
        examples=(Example("k", "copy", (1.0, 2.0), 3.0),),
    )
    for each in (verdict, failed("no")):
        assert (
            VERDICTS.reader.read(Verdict, json.loads(json.dumps(plain_verdict(each))))
            == each
        )


def test_the_model_learns_that_a_site_gains(program_and_sites):
    _, sites = program_and_sites
    model = GainModel(sites, {})
    choices = list(itertools.chain(*map(choices_of, sites.values())))
    gaining = choices[-1].site
    before = dict(zip(choices, model.weights((), choices), strict=True))
    model.learn((choices[-1],), 100.0, 80.0)
    model.learn((choices[0],), 100.0, 150.0)
    after = dict(zip(choices, model.weights((), choices), strict=True))
    same = [c for c in choices if c.site == gaining and c != choices[-1]]
    assert all(after[c] > before[c] for c in same)
    lost = [c for c in choices if c.site == choices[0].site]
    assert all(after[c] < before[c] for c in lost)
