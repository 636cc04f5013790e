"""The search for layouts: two baselines, chosen layouts, and a last check."""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from meshwright.errors import CompilerError, SearchError
from meshwright.features.tune.layouts.compiler_judge import Judge
from meshwright.features.tune.layouts.gain_model import GainModel
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.layouts.kernels import HloKernel
from meshwright.features.tune.layouts.problem import LayoutProblem, State, question_of
from meshwright.features.tune.layouts.screened_search import (
    ScreenedSearch,
    pruned,
    without_one,
)
from meshwright.features.tune.layouts.screens import Screens
from meshwright.features.tune.layouts.sites import Site
from meshwright.features.tune.layouts.verdict import Question, Verdict
from meshwright.program.ir import Program
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Stopped, search

type Baseline = Literal["default", "auto"]

_RESERVED = 3
"""Programs judged outside the search: default, AUTO, and the final choice once more."""


@dataclass(frozen=True, slots=True)
class LayoutOutcome:
    """The result of a search for layouts.

    default, auto: verdicts on the program without choices: with default layouts of
        arguments and results, and with layouts that the compiler chooses for them.
    best: the chosen layouts; () if none are better than the baseline.
    verdict: the verdict on `best`.
    charged: cost of `best`, with the charge for bytes without an estimate.
    gains: relative cost that each site's choice saves, by name of the site.
    judged: number of programs that were compiled.
    screened: number of programs that were optimised without generating code.
    failures: error messages of programs that did not compile.
    history: least cost after each judged program.
    """

    default: Verdict
    auto: Verdict
    best: State
    verdict: Verdict
    charged: float
    gains: Mapping[str, float]
    judged: int
    screened: int
    failures: tuple[str, ...]
    history: tuple[float, ...]
    stopped: Stopped

    @property
    def baseline(self) -> Baseline:
        """The cheaper baseline, "default" or "auto"; layouts are added to it."""
        return "auto" if self.auto.cost < self.default.cost else "default"

    @property
    def base(self) -> Verdict:
        """The verdict on the baseline."""
        return self.auto if self.baseline == "auto" else self.default


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Limits of a search for layouts.

    budget: number of programs to compile.
    losses: number of trials in a row without a gain that ends the search.
    charge: cost of one byte that instructions without an estimate write, beyond the
        bytes of the baseline.
    screens: number of programs to screen (optimise without generating code) before the
        first candidate is compiled.
    """

    budget: int
    seed: int
    losses: int = 8
    charge: float = 0.0
    screens: int = 240

    def __post_init__(self) -> None:
        if self.budget <= _RESERVED:
            raise SearchError(
                f"a budget of {self.budget} programs; wanted more than {_RESERVED}, which "
                "are the two baselines and the last check"
            )


@dataclass(slots=True, eq=False)
class LayoutSearch:
    """One search for layouts; verdicts that the journal has are not asked for again.

    name: text that begins the journal's keys: the backend and a hash of the program.
    show: a function that is called with lines about the progress.
    asked: keys of the programs that were judged.
    costs: least cost after each of them.
    screens: screened programs; the key is whether AUTO layouts are the baseline.
    """

    program: Program
    sites: Mapping[str, Site]
    judge: Judge
    model: GainModel
    options: SearchOptions
    journal: Journal
    name: str
    show: Callable[[str], None] = lambda text: None
    asked: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    screens: dict[bool, Screens] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for is_auto in (False, True):
            self.screens[is_auto] = self._new_screens(is_auto)
        self.screens[True].costs = self.screens[False].costs

    def run(self) -> LayoutOutcome:
        """The best layouts within the budget; at worst, the baseline without any."""
        default = self._ask((), False)
        auto = self._auto(default)
        base = min(default, auto, key=lambda verdict: verdict.cost)
        if not math.isfinite(base.cost):
            raise CompilerError(f"the program itself does not compile: {default.error}")
        is_auto = auto.cost < default.cost
        if self.judge.screens:
            best, stopped, gains = self._screened(is_auto, base)
        else:
            best, stopped, gains = self._direct(base)
        verdict = self._ask(best, is_auto)
        outcome = LayoutOutcome(
            default=default,
            auto=auto,
            best=best,
            verdict=verdict,
            charged=self._charged(verdict, base),
            gains=gains,
            judged=len(self.asked),
            screened=sum(len(each.kernels) for each in self.screens.values()),
            failures=tuple(self.failures),
            history=tuple(self.costs),
            stopped=stopped,
        )
        return self._checked(outcome) if outcome.best else outcome

    def _auto(self, default: Verdict) -> Verdict:
        """The verdict if the compiler chooses the layouts of arguments and results.

        It equals the verdict on the default if the compiler chooses the same program.
        """
        if not self.judge.screens:
            return default
        programs = [each.program(()) for each in self.screens.values()]
        if programs[0] and programs[0] == programs[1]:
            return default
        return self._ask((), True)

    def _direct(self, base: Verdict) -> tuple[State, Stopped, dict[str, float]]:
        """The best state, the reason of the end, and gains; judges every candidate."""

        def cost(state: State) -> float:
            return self._charged(self._ask(state, False), base)

        options = self.options
        result = search(
            LayoutProblem(self.sites, cost),
            Surrogate(options.seed, self.model, losses=options.losses),
            Budget(evaluations=options.budget - _RESERVED + 1),
        )
        return result.state, result.stopped, self._gains(result.state, base)

    def _screened(
        self, is_auto: bool, base: Verdict
    ) -> tuple[State, Stopped, dict[str, float]]:
        """The best state, the reason of the end, and gains; compiles few candidates."""
        options, screens = self.options, self.screens[is_auto]
        rounds = ScreenedSearch(
            screens,
            self.model,
            lambda state: self._affordable(state, is_auto, base),
            options.seed,
            options.screens,
            options.losses,
        )
        stopped: Stopped = "interrupted"
        with contextlib.suppress(KeyboardInterrupt):
            stopped = rounds.run(base.cost)
        best = self._verified(pruned(screens, rounds.best), is_auto, base)
        cost = screens.cost(best)
        rests = zip(best, without_one(best), strict=True)
        gains = {choice.site: screens.cost(rest) / cost - 1 for choice, rest in rests}
        return best, stopped, gains

    def _affordable(self, state: State, is_auto: bool, base: Verdict) -> float | None:
        """The cost of a state; `None` if only the last checks are left to pay for."""
        if len(self.asked) > self.options.budget - _RESERVED:
            return None
        return self._charged(self._ask(state, is_auto), base)

    def _verified(self, best: State, is_auto: bool, base: Verdict) -> State:
        """The state of least cost among `best` and the states that were compiled."""
        compiled = {
            state: self._charged(verdict, base)
            for state in self.screens[is_auto].kernels
            if (verdict := self.journal.verdicts.get(self._key(state, is_auto)))
        }
        compiled[best] = self._charged(self._ask(best, is_auto), base)
        return min(compiled, key=lambda s: (compiled[s], s != best))

    def _new_screens(self, is_auto: bool) -> Screens:
        def screen(state: State) -> list[HloKernel] | None:
            count = sum(len(each.kernels) for each in self.screens.values())
            self.show(f"{len(self.asked)} programs, {count + 1} screened")
            return self.judge.screen(self._question(state, is_auto))

        return Screens(screen, self.options.charge)

    # -- verdicts ----------------------------------------------------------------------

    def _checked(self, outcome: LayoutOutcome) -> LayoutOutcome:
        """The result, judged again with all its layouts fixed.

        If it is not better than the baseline, the result is the baseline.
        """
        if self.judge.screens and outcome.baseline == "default":
            is_gain = outcome.charged < outcome.base.cost
            return outcome if is_gain else self._none(outcome)
        question = self._question(outcome.best, outcome.baseline == "auto")
        written = {
            i: layout
            for i, layout in enumerate(outcome.verdict.in_layouts)
            if layout is not None and outcome.baseline == "auto"
        }
        last = self.judge.confirm(
            replace(question, inputs={**written, **question.inputs})
        )
        charged = self._charged(last, outcome.base)
        outcome = replace(outcome, judged=outcome.judged + 1)
        if charged < outcome.base.cost * (1 - last.spread):
            return replace(outcome, verdict=last, charged=charged)
        return self._none(outcome)

    def _none(self, outcome: LayoutOutcome) -> LayoutOutcome:
        """The result without chosen layouts, with the verdict on the baseline."""
        base = outcome.base
        return replace(outcome, best=(), verdict=base, charged=base.cost, gains={})

    def _gains(self, best: State, base: Verdict) -> dict[str, float]:
        """The relative cost that each choice saves, by name of the site.

        A choice is left out if the state without it was not judged.
        """
        cost = self._charged(self._ask(best, False), base)
        gains: dict[str, float] = {}
        for choice, rest in zip(best, without_one(best), strict=True):
            verdict = self.journal.verdicts.get(self._key(rest, False))
            if verdict is not None and math.isfinite(verdict.cost):
                gains[choice.site] = self._charged(verdict, base) / cost - 1
        return gains

    def _charged(self, verdict: Verdict, base: Verdict) -> float:
        """A verdict's cost, plus the charge for unestimated bytes beyond `base`'s."""
        more = verdict.unestimated_bytes - base.unestimated_bytes
        return verdict.cost + self.options.charge * max(0, more)

    def _question(self, state: State, is_auto: bool) -> Question:
        return question_of(self.program, self.sites, state, is_auto)

    def _key(self, state: State, is_auto: bool) -> str:
        entry = "auto" if is_auto else "default"
        return " ".join((self.name, entry, *map(str, state)))

    def _ask(self, state: State, is_auto: bool) -> Verdict:
        key = self._key(state, is_auto)
        verdict = self.journal.verdicts.get(key)
        if verdict is None:
            verdict = self.judge.judge(self._question(state, is_auto))
            self.journal.note(key, verdict)
        if key not in self.asked:
            self.asked.add(key)
            self.screens[False].costs.learn(verdict.examples)
            least = min(self.costs[-1:] + [verdict.cost])
            self.costs.append(least)
            self.failures += [verdict.error] if verdict.error else []
            self.show(f"{len(self.asked)} programs, {least:.6g} {self.judge.unit}")
        return verdict
