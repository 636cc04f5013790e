"""The search for layouts: baseline, sites, choices one after another, and a last check."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from meshwright.compile.tune.gain_model import GainModel
from meshwright.compile.tune.journal import Journal
from meshwright.compile.tune.kernel_costs import KernelCosts, async_bytes, same_program
from meshwright.compile.tune.kernels import HloKernel
from meshwright.compile.tune.problem import LayoutProblem, State, question_of
from meshwright.compile.tune.sites import Site
from meshwright.compile.tune.verdict import Judge, Question, Verdict
from meshwright.errors import CompilerError, SearchError
from meshwright.program.ir import Program
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, Stopped, search

type Baseline = Literal["default", "auto"]

_EACH_ROUND = 2
"""Programs that are compiled between two searches by predicted costs."""
_HOPELESS = 1.3
"""Predicted cost, as a multiple of the least one, from which nothing is compiled."""
_EACH_CHOICE = 2e-3
"""Relative gain by which one more choice has to pay."""
_LEAST_GAIN = 1e-3
"""Relative gain that counts as one."""

_RESERVED = 3
"""Programs that are judged beside the search: default, AUTO, and the result once more."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search for layouts.

    default, auto: verdicts without choices, arguments in the default layouts or in those
        that the compiler chooses. baseline: the better of them.
    best: the chosen layouts, () if none are better than the baseline. verdict: on them.
    charged: their cost, with the charge for what has no estimate.
    gains: by name of a site, the relative cost that its choice saves.
    judged: programs that were judged. screened: programs of which no code was generated.
    failures: reasons of those that did not compile.
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
        """The better of the two programs without choices."""
        return "auto" if self.auto.cost < self.default.cost else "default"

    @property
    def base(self) -> Verdict:
        """The verdict on the baseline."""
        return self.auto if self.baseline == "auto" else self.default


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Limits of a search.

    budget: programs to judge. losses: trials in a row without a gain that end the search.
    charge: cost of one byte that instructions without an estimate write beyond those of
        the baseline. screens: programs to screen before the first is compiled.
    """

    budget: int
    seed: int
    losses: int = 12
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
    """One search: asks the judge what the journal does not know, and keeps count.

    name: of the program and the judge, in the journal. show: is told how the search goes.
    asked: keys of the programs that were judged. costs: least cost after each of them.
    known: costs of kernels. kernels: those of screened states, `None` if that failed.
    compiled: programs that were chosen to be compiled, as sets of kernels.
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
    known: KernelCosts = field(default_factory=KernelCosts)
    kernels: dict[State, list[HloKernel] | None] = field(default_factory=dict)
    compiled: set[object] = field(default_factory=set)

    def run(self) -> Found:
        """The best layouts within the budget, never worse than the baseline."""
        default = self._ask((), False)
        auto = self._ask((), True) if self.judge.chooses_entry else default
        base = min(default, auto, key=lambda verdict: verdict.cost)
        if not math.isfinite(base.cost):
            raise CompilerError(f"the program itself does not compile: {default.error}")
        is_auto = auto.cost < default.cost

        if self.judge.screens:
            best, stopped, gains = self._screened(is_auto, base)
        else:
            best, stopped, gains = self._direct(is_auto, base)
        verdict = self._ask(best, is_auto)
        found = Found(
            default=default,
            auto=auto,
            best=best,
            verdict=verdict,
            charged=self._charged(verdict, base),
            gains=gains,
            judged=len(self.asked),
            screened=len(self.kernels),
            failures=tuple(self.failures),
            history=tuple(self.costs),
            stopped=stopped,
        )
        return self._checked(found) if found.best else found

    def _direct(
        self, is_auto: bool, base: Verdict
    ) -> tuple[State, Stopped, dict[str, float]]:
        """The best state of a search that judges every candidate."""

        def cost(state: State) -> float:
            return self._charged(self._ask(state, is_auto), base)

        options = self.options
        result = search(
            LayoutProblem(self.sites, cost),
            Surrogate(options.seed, self.model, losses=options.losses),
            Budget(evaluations=options.budget - _RESERVED + 1),
        )
        gains = self._gains(result.state, is_auto, base)
        return result.state, result.stopped, gains

    # -- with screens ------------------------------------------------------------------

    def _screened(
        self, is_auto: bool, base: Verdict
    ) -> tuple[State, Stopped, dict[str, float]]:
        """The best state of rounds that screen many candidates and compile few.

        Each round searches by predicted costs from the best state, and compiles the
        candidates that promise most, whose kernels make the next predictions better.
        """
        options, best, losses = self.options, (), 0
        least, stopped = base.cost, "evaluations"
        try:
            for number in itertools.count():
                promising = self._round(number, best, is_auto, least)
                for state in promising:
                    if len(self.asked) >= options.budget - 1:
                        return best, "evaluations", self._shares(best, is_auto)
                    cost = self._charged(self._ask(state, is_auto), base)
                    losses = 0 if cost < least * (1 - _LEAST_GAIN) else losses + 1
                    if cost < least:
                        best, least = state, cost
                losses += 0 if promising else _EACH_ROUND
                if losses >= options.losses:
                    stopped = "stalled"
                    break
        except KeyboardInterrupt:
            stopped = "interrupted"
        return best, stopped, self._shares(best, is_auto)

    def _round(
        self, number: int, best: State, is_auto: bool, least: float
    ) -> list[State]:
        """States to compile next, by rising predicted cost, no two alike."""

        def cost(state: State) -> float:
            return self._predicted(state, is_auto)

        cost(())
        plain = self.kernels[()]
        if plain is not None:
            self.compiled.add(frozenset(same_program(plain).items()))
        count = self.options.screens if number == 0 else self.options.screens // 4
        for rest in _without_one(best):
            cost(rest)
        model = GainModel(self.sites, self.model.prior, list(self.model.seen))
        search(
            LayoutProblem(self.sites, cost, best),
            Surrogate(self.options.seed + number, model),
            Budget(evaluations=count),
        )
        self.model.seen[:] = model.seen
        # Choices that hardly matter are left out.
        ranked = sorted(
            self.kernels, key=lambda s: (cost(s) * (1 + _EACH_CHOICE * len(s)), str(s))
        )
        chosen: list[State] = []
        for state in ranked:
            kernels = self.kernels[state]
            if len(chosen) == _EACH_ROUND or cost(state) >= least * _HOPELESS:
                break
            if kernels is None:
                continue
            program = frozenset(same_program(kernels).items())
            if program not in self.compiled:
                self.compiled.add(program)
                chosen.append(state)
        return chosen

    def _predicted(self, state: State, is_auto: bool) -> float:
        """The predicted cost of a state, exact if all of its kernels are known."""
        if state not in self.kernels:
            self.kernels[state] = self.judge.screen(self._question(state, is_auto))
            self.show(f"{len(self.asked)} programs, {len(self.kernels)} screened")
        kernels, plain = self.kernels[state], self.kernels.get(())
        if kernels is None or plain is None:
            return math.inf if state else self.costs[-1]
        more = async_bytes(kernels) - async_bytes(plain)
        return self.known.predict(kernels) + self.options.charge * max(0.0, more)

    def _shares(self, best: State, is_auto: bool) -> dict[str, float]:
        """Savings of each choice, by the predicted costs of the states without it."""
        if not best:
            return {}
        cost = self._predicted(best, is_auto)
        rests = zip(best, _without_one(best), strict=True)
        return {
            choice.site: self._predicted(rest, is_auto) / cost - 1
            for choice, rest in rests
        }

    # -- verdicts ----------------------------------------------------------------------

    def _checked(self, found: Found) -> Found:
        """The result judged once more, its layouts written out; the baseline if worse."""
        question = self._question(found.best, found.baseline == "auto")
        written = {
            i: layout
            for i, layout in enumerate(found.verdict.in_layouts)
            if layout is not None and found.baseline == "auto"
        }
        last = self.judge.confirm(
            replace(question, inputs={**written, **question.inputs})
        )
        charged = self._charged(last, found.base)
        judged = found.judged + 1
        if charged < found.base.cost * (1 - last.spread):
            return replace(found, verdict=last, charged=charged, judged=judged)
        base = found.base
        return replace(
            found, best=(), verdict=base, charged=base.cost, gains={}, judged=judged
        )

    def _gains(self, best: State, is_auto: bool, base: Verdict) -> dict[str, float]:
        """Savings of each choice: against the state without it, if that was judged."""
        cost = self._charged(self._ask(best, is_auto), base)
        gains: dict[str, float] = {}
        for choice in best:
            rest = tuple(each for each in best if each != choice)
            known = self.journal.verdicts.get(self._key(rest, is_auto))
            if known is not None and math.isfinite(known.cost):
                gains[choice.site] = self._charged(known, base) / cost - 1
        return gains

    def _charged(self, verdict: Verdict, base: Verdict) -> float:
        """The cost, with a charge for bytes that moved to where none are estimated."""
        more = verdict.unestimated_bytes - base.unestimated_bytes
        return verdict.cost + self.options.charge * max(0, more)

    def _question(self, state: State, is_auto: bool) -> Question:
        return question_of(self.program, self.sites, state, is_auto)

    def _key(self, state: State, is_auto: bool) -> str:
        entry = "auto" if is_auto else "default"
        return " ".join((self.name, entry, *map(str, state)))

    def _ask(self, state: State, is_auto: bool) -> Verdict:
        key = self._key(state, is_auto)
        known = self.journal.verdicts.get(key)
        if known is None:
            known = self.judge.judge(self._question(state, is_auto))
            self.journal.note(key, known)
        if key not in self.asked:
            self.asked.add(key)
            self.known.learn(known.examples)
            least = min(self.costs[-1:] + [known.cost])
            self.costs.append(least)
            self.failures += [known.error] if known.error else []
            self.show(f"{len(self.asked)} programs, {least:.6g} {self.judge.unit}")
        return known


def _without_one(state: State) -> Iterator[State]:
    """The states without one of the choices, in their order."""
    for choice in state:
        yield tuple(each for each in state if each != choice)
