"""Judges tell what a program with chosen layouts costs.

`EstimateJudge` takes the TPU compiler's estimate of cycles. `MeasuringJudge` times
XLA's code on this CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from meshwright.errors import CompilerError
from meshwright.features.tune.compiler_server.server import CompilerServer, Entry
from meshwright.features.tune.layouts.constrain import constrain
from meshwright.features.tune.layouts.kernel_costs import (
    Example,
    examples_of,
    unestimated_bytes,
)
from meshwright.features.tune.layouts.kernel_work import Rates
from meshwright.features.tune.layouts.kernels import (
    HloKernel,
    control_runs,
    read_kernels,
)
from meshwright.features.tune.layouts.verdict import Question, Verdict, failed
from meshwright.run.compilers.confirm import DeviceStep
from meshwright.run.compilers.hlo import cycles_of, estimated_cycles, parse_hlo


@dataclass(frozen=True, slots=True, eq=False)
class TunedStep:
    """A device program whose layouts are being chosen.

    Donated arguments keep the default layout.

    kept_outputs: positions of results that keep the default layout, because they take
        over the memory of donated arguments.
    """

    plain: DeviceStep
    kept_outputs: frozenset[int]

    def with_choices(self, question: Question) -> tuple[DeviceStep, Entry]:
        """The program with chosen layouts, and layouts of arguments and results."""
        lowered = self.plain.lowered
        program = constrain(lowered.program, question.layouts)
        step = replace(self.plain, lowered=replace(lowered, program=program))
        free = "auto" if question.is_auto else None
        inputs = tuple(
            question.inputs.get(i) or (None if i in step.donated else free)
            for i in range(len(step.avals))
        )
        outputs = tuple(
            None if i in self.kept_outputs else free
            for i in range(len(lowered.outputs))
        )
        return step, Entry(inputs, outputs)


def _verdict(
    answer: dict[str, Any],
    cost: float,
    num_bytes: int = 0,
    examples: tuple[Example, ...] = (),
) -> Verdict:
    """The verdict with the figures of a compiler's answer.

    num_bytes: bytes that instructions without an estimate of cycles write.
    """
    return Verdict(
        cost=cost,
        bytes_accessed=answer["bytes_accessed"],
        async_copies=async_copies(answer["hlo"]),
        unestimated_bytes=num_bytes,
        temp_bytes=answer["temp_bytes"],
        in_layouts=_layouts(answer["in_layouts"]),
        out_layouts=_layouts(answer["out_layouts"]),
        examples=examples,
    )


def async_copies(text: str) -> int:
    """The number of asynchronous copies, slices and collectives in one execution.

    They have no estimate of cycles in the scheduled HLO text. Those in a loop count once
    per iteration.
    """
    module = parse_hlo(text)
    return sum(
        runs
        for name, runs in control_runs(module).items()
        for each in module.computations[name]
        if each.opcode.endswith("-start") and cycles_of(each) is None
    )


def _layouts(lists: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(None if each is None else tuple(each) for each in lists)


@dataclass(frozen=True, slots=True, eq=False)
class EstimateJudge:
    """Judges layouts by the compiler's estimate of cycles.

    Asynchronous copies, slices and custom calls have no estimate, and copies on chip
    that change the minor dim have a constant in its place. The bytes that they move
    beyond those of the baseline are charged at the bandwidth of main memory, so that
    moving work into them is no gain.
    """

    server: CompilerServer
    step: TunedStep
    rates: Rates
    unit: str = "cycles"
    screens: bool = True
    """Whether the judge can screen programs, and choose layouts of their arguments."""

    def screen(self, question: Question) -> list[HloKernel] | None:
        """Optimise a program without generating code; returns its kernels.

        Returns `None` if that fails. It is much faster than `judge`.
        """
        try:
            text = self.server.screen(*self.step.with_choices(question))
            return read_kernels(text, self.rates)
        except CompilerError:
            return None

    def judge(self, question: Question) -> Verdict:
        try:
            answer = self.server.compile("", *self.step.with_choices(question))
        except CompilerError as error:
            return failed(str(error))
        hlo, kernels = answer["hlo"], read_kernels(answer["optimized"], self.rates)
        num_bytes = int(unestimated_bytes(kernels))
        cycles = estimated_cycles(hlo)
        return _verdict(answer, cycles, num_bytes, examples_of(kernels, hlo))

    confirm = judge


_PASSES, _LAST_PASSES = 5, 15
_PROCESSES = 3
"""Number of new processes in each of which the chosen layouts must win in the end.
Addresses of code and arrays differ between processes, and have changed a program's time
by 5 %.
"""

_LEAST_S = 0.02
"""CPU seconds for which a program is repeated in one pass of a measurement."""


_DEFAULT = Question({}, {}, False)
"""The program without chosen layouts."""


@dataclass(slots=True, eq=False)
class MeasuringJudge:
    """Judges layouts by CPU time on one thread, relative to that of default layouts.

    The programs with chosen and with default layouts run in shuffled order in each of
    several passes. The cost is the median of the ratios of their times. So the default
    costs 1, and an interrupted search can go on although the machine runs at another
    speed by then.
    """

    server: CompilerServer
    step: TunedStep
    seed: int
    unit: str = "of default"
    screens: bool = False
    default: Verdict | None = None
    count: int = 0

    def screen(self, question: Question) -> list[HloKernel] | None:
        del question
        return None

    def judge(self, question: Question) -> Verdict:
        return self._measured(question, _PASSES)

    def confirm(self, question: Question) -> Verdict:
        """The least favourable of several verdicts, each measured in a new process."""
        verdicts: list[Verdict] = []
        for _ in range(_PROCESSES):
            self.server.restart()
            self.default = None
            verdicts.append(self._measured(question, _LAST_PASSES))
        return max(verdicts, key=lambda verdict: verdict.cost * (1 + verdict.spread))

    def _measured(self, question: Question, passes: int) -> Verdict:
        try:
            if self.default is None:
                self.default = self._compiled("default", _DEFAULT)
            if question == _DEFAULT:
                return self.default
            verdict = self._compiled("chosen", question)
            self.count += 1
            first, other = self.server.measure(
                ("default", "chosen"), passes, _LEAST_S, self.seed + self.count
            )
        except CompilerError as error:
            self.default = None  # the process that holds the default may have ended
            return failed(str(error))
        ratio, spread = _ratio(first, other)
        return replace(verdict, cost=ratio, spread=spread)

    def _compiled(self, key: str, question: Question) -> Verdict:
        """Compile a program; the verdict's cost is 1 until it is measured."""
        answer = self.server.compile(key, *self.step.with_choices(question))
        return _verdict(answer, 1.0)


def _ratio(first: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The median over passes of other / first, and half its interquartile range.

    The range is divided by the median.
    """
    ratios = sorted(b / a for a, b in zip(first, other, strict=True))
    quarter = len(ratios) // 4
    middle = median(ratios)
    return middle, (ratios[-1 - quarter] - ratios[quarter]) / 2 / middle


type Judge = EstimateJudge | MeasuringJudge
"""A compiler that finds out the costs of programs with chosen layouts.

`judge` returns a verdict with an infinite cost and an error if a program does not compile.
`confirm` finds the cost of a search's final choice with more care.
"""
