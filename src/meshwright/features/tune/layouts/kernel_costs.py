"""Cycles of kernels: known for compiled kernels, else guessed from similar ones."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshwright.features.tune.layouts.kernels import HloKernel
from meshwright.run.compilers.hlo import cycles_of, parse_hlo

_WIDTH = 0.5
"""Extra distance in features at which a kernel has 1/e of the nearest one's weight."""
_OTHER_KIND = 2.0
"""Distance that is added between kernels of different kinds."""
_MARGIN, _SPREAD, _MARGIN_COUNT = 0.1, 0.25, 10
"""Prior for the error of a guess, the logarithm of estimate / guess.

It consists of a mean, a standard deviation, and the number of observed errors that it
weighs as much as.
"""
_MOST_ERROR = 0.7
"""Largest error of a guess that is recorded, as a logarithm: a factor of 2."""


@dataclass(frozen=True, slots=True)
class Example:
    """A compiled kernel, with the compiler's estimate of its cycles or 0."""

    key: str
    kind: str
    features: tuple[float, ...]
    cycles: float


def examples_of(kernels: Iterable[HloKernel], final: str) -> tuple[Example, ...]:
    """The kernels of a compiled program, with the compiler's estimates of cycles.

    final: HLO text at the end of compilation, which contains the estimates.
    """
    cycles = {
        each.name: float(cycles_of(each) or 0)
        for lines in parse_hlo(final).computations.values()
        for each in lines
    }
    return tuple(
        Example(k.key, k.kind, k.features, cycles.get(k.name, 0.0)) for k in kernels
    )


@dataclass(slots=True, eq=False)
class KernelCosts:
    """Cycles of compiled kernels by key, and guesses for keys that were never compiled.

    A guess is what a linear model of the kernel's work expects, times the mean ratio of
    known to expected cycles of kernels with similar features (Nadaraya and Watson's
    estimator). A search prefers kernels whose guess is too low. So guesses are raised
    by the mean error of earlier guesses for kernels that were then compiled, and by a
    margin while there are few of them.

    known: cycles by key. examples: compiled kernels with an estimate. guesses: guessed
        cycles by key.
    errors: logarithms of estimate / guess.
    """

    known: dict[str, float] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    guesses: dict[str, float] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)

    def learn(self, examples: Iterable[Example]) -> None:
        """Record compiled kernels, and how wrong earlier guesses for them were."""
        for example in examples:
            if example.key in self.known:
                continue
            self.known[example.key] = example.cycles
            if example.cycles > 0:
                self.examples.append(example)
                guess = self.guesses.get(example.key)
                if guess is not None:
                    error = math.log(example.cycles / guess)
                    self.errors.append(max(-_MOST_ERROR, min(_MOST_ERROR, error)))
        self.guesses.clear()

    def predict(self, kernels: Sequence[HloKernel]) -> float:
        """Predicted cycles of a program with these kernels.

        Asynchronous kernels have no estimate and count 0.
        """
        return self._total(kernels, 1.0)

    def least(self, kernels: Sequence[HloKernel]) -> float:
        """Cycles of a program with these kernels if guesses are too high.

        Guesses are lowered by one standard deviation of their errors; known cycles
        stay.
        """
        mean, spread = self._error()
        return self._total(kernels, math.exp(mean - spread - max(mean, 0.0)))

    def _total(self, kernels: Sequence[HloKernel], factor: float) -> float:
        """Cycles of kernels, of which guesses are multiplied by a factor."""
        return sum(
            k.runs * self.cycles_of(k) * (1.0 if k.key in self.known else factor)
            for k in kernels
            if not k.is_async
        )

    def num_unknown(self, kernels: Sequence[HloKernel]) -> int:
        """The number of kernels with an estimate that were never compiled."""
        return sum(k.key not in self.known and not k.is_async for k in kernels)

    def cycles_of(self, kernel: HloKernel) -> float:
        """Known or guessed cycles of one execution of a kernel."""
        if kernel.key in self.known:
            return self.known[kernel.key]
        if kernel.key not in self.guesses:
            self.guesses[kernel.key] = self.guess(kernel)
        return self.guesses[kernel.key] * math.exp(max(self._error()[0], 0.0))

    def _error(self) -> tuple[float, float]:
        """Mean and standard deviation of the errors of guesses, as logarithms."""
        count = len(self.errors) + _MARGIN_COUNT
        mean = sum(self.errors, _MARGIN * _MARGIN_COUNT) / count
        squares = sum((e - mean) ** 2 for e in self.errors)
        return mean, math.sqrt((squares + _MARGIN_COUNT * _SPREAD**2) / count)

    def guess(self, kernel: HloKernel) -> float:
        """Cycles of a kernel that was never compiled, without a margin."""
        if not self.examples:
            return math.exp(kernel.features[0])
        features = np.array([each.features for each in self.examples])
        gaps = features - np.array(kernel.features)
        kinds = np.array([each.kind != kernel.kind for each in self.examples])
        distance = np.abs(gaps[:, 2:]).sum(1) + 0.3 * np.abs(gaps[:, :2]).sum(1)
        distance += _OTHER_KIND * kinds
        weights = np.exp(-(distance - distance.min()) / _WIDTH)
        # Cycles over expected cycles of similar kernels, times those of this kernel.
        logs = np.log([each.cycles for each in self.examples]) - gaps[:, 0]
        return float(np.exp((weights * logs).sum() / weights.sum()))


def unestimated_bytes(kernels: Sequence[HloKernel]) -> float:
    """Bytes that kernels without an estimate of cycles move in one step."""
    return sum(k.runs * k.unestimated_bytes for k in kernels)


def same_program(kernels: Sequence[HloKernel]) -> Mapping[str, int]:
    """Executions of each kernel by key, and the bytes that are moved without estimate.

    Two programs with equal entries cost the same, and only one has to be compiled.
    """
    counts: dict[str, int] = {"unestimated": int(unestimated_bytes(kernels))}
    for kernel in kernels:
        if not kernel.is_async:
            counts[kernel.key] = counts.get(kernel.key, 0) + kernel.runs
    return counts
