"""The search for layouts, with judges whose best layouts are known."""

import dataclasses
import itertools
import json
import math

import jax.numpy as jnp
import pytest

from meshwright.compile.tune.layouts.gain_model import GainModel
from meshwright.compile.tune.layouts.journal import Journal
from meshwright.compile.tune.layouts.kernel_costs import Example
from meshwright.compile.tune.layouts.kernels import HloKernel
from meshwright.compile.tune.layouts.problem import choices_of
from meshwright.compile.tune.layouts.screened_search import ScreenedSearch
from meshwright.compile.tune.layouts.search import LayoutSearch, SearchOptions
from meshwright.compile.tune.layouts.sites import find_sites
from meshwright.compile.tune.layouts.verdict import Verdict, failed
from meshwright.compile.tune.tune import on_one_device
from meshwright.errors import CompilerError, PlanError, SearchError


def decided():
    def fn(p, x):
        y = jnp.tanh(x @ p["a"])
        z = jnp.einsum("btd,dhk->bthk", y, p["b"])
        return jnp.sum(jnp.einsum("bthk,bshk->bhts", z, z))

    p = {"a": jnp.ones((16, 16)), "b": jnp.ones((16, 2, 8))}
    return on_one_device(fn, (p, jnp.ones((2, 8, 16))))


class FakeJudge:
    """A compiler with one kernel per value, cheaper with one minor dim by `gains`.

    hidden: values whose other order moves bytes to a copy without an estimate.
    """

    unit = "cycles"
    chooses_entry = True

    def __init__(self, gains, auto=1.0, screens=True, hidden=(), fails=()):
        self.gains, self.auto, self.screens = gains, auto, screens
        self.hidden, self.fails = hidden, fails
        self.judged, self.num_screened, self.stop_at = 0, 0, None

    def kernels(self, question):
        """Key and cost of each value's kernel, and how many copies were moved."""
        chosen = question.layouts
        entry = "auto" if question.is_auto and self.auto != 1.0 else ""
        found = []
        for i, (value, minor, factor) in enumerate(self.gains):
            order = chosen.get(value)
            is_best = order is not None and order[-1] == minor
            found.append(
                (
                    f"k{i}{order}{entry}",
                    1.0 if order is None else factor if is_best else 1.3,
                )
            )
        return found, sum(v in self.hidden for v in chosen)

    def screen(self, question):
        self.num_screened += 1
        found, moved = self.kernels(question)
        kernels = [
            HloKernel(key, key, 1, key[:2], (math.log(cost),), False, 0.0)
            for key, cost in found
        ]
        copy = HloKernel("copy", "copy", 1, "copy", (1.0,), True, 1000.0 * moved)
        return [*kernels, copy]

    def judge(self, question):
        self.judged += 1
        if self.stop_at == self.judged:
            raise KeyboardInterrupt
        if any(value in self.fails for value in question.layouts):
            return failed("it does not compile")
        found, moved = self.kernels(question)
        scale = 100 * (self.auto if question.is_auto else 1.0)
        examples = [
            Example(key, key[:2], (math.log(cost),), scale * cost)
            for key, cost in found
        ]
        return Verdict(
            scale * sum(cost for _, cost in found),
            unestimated_bytes=1000 * moved,
            in_layouts=((0, 1), (0, 1, 2), (0, 1, 2)),
            out_layouts=((),),
            examples=tuple(examples),
        )

    confirm = judge


def make_gains(sites, factors):
    """For the first sites that are no inputs, their best minor dim and a factor."""
    inner = [s for s in sites.values() if not s.role.startswith("input")]
    return [
        (site.values[0], 0, factor)
        for site, factor in zip(inner, factors, strict=False)
    ]


def make_search(judge, sites, program, *, budget=30, journal=None, **options):
    return LayoutSearch(
        program,
        sites,
        judge,
        GainModel(sites, {}),
        SearchOptions(budget, 0, **{"losses": 20, "screens": 60, **options}),
        journal or Journal(),
        "fake",
    )


@pytest.fixture
def program_and_sites():
    made = decided()
    program = made.lowered.program
    return program, {s.name: s for s in find_sites(program, made.captured.paths)}


def test_the_known_best_layouts_are_found_with_screens(program_and_sites):
    program, sites = program_and_sites
    gains = make_gains(sites, (1.0, 0.5, 1.0, 0.7))
    judge = FakeJudge(gains)
    found = make_search(judge, sites, program, budget=60, losses=40).run()
    assert found.verdict.cost == pytest.approx(320)
    assert judge.judged == found.judged <= 60
    assert found.screened == judge.num_screened


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


def test_shares_say_what_each_layout_saves(program_and_sites):
    program, sites = program_and_sites
    found = make_search(
        FakeJudge(make_gains(sites, (0.5, 0.8))), sites, program, budget=60, losses=40
    ).run()
    shares = sorted(found.gains.values(), reverse=True)
    assert shares[:2] == pytest.approx([50 / 130, 20 / 130], rel=0.05)


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
        assert Verdict.from_json(json.loads(json.dumps(each.to_json()))) == each


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
