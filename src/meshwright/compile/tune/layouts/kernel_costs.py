"""Costs of kernels: exact for compiled ones, else guessed from similar kernels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshwright.compile.tune.layouts.kernels import HloKernel
from meshwright.run.compilers.hlo import kernel_cycles

_WIDTH = 0.5
"""Distance of features, in units of e, at which a known kernel counts 1/e as much."""
_OTHER_KIND = 2.0
"""Distance between kernels of different kinds."""
_MARGIN, _SPREAD, _MARGIN_COUNT = 0.1, 0.25, 10
"""Mean and deviation of the errors of guesses, as if so many had been seen."""
_MOST_ERROR = 0.7
"""Larger errors, by a factor of 2, count as this."""
_FLOOR = 50.0
"""Cycles of a kernel of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel that was compiled, with the compiler's estimate of cycles; 0 without one."""

    key: str
    kind: str
    features: tuple[float, ...]
    cycles: float


def examples_of(kernels: Iterable[HloKernel], final: str) -> tuple[Example, ...]:
    """The kernels of a program with the estimates in its final text."""
    cycles = kernel_cycles(final)
    return tuple(
        Example(k.key, k.kind, k.features, cycles.get(k.name, 0.0)) for k in kernels
    )


@dataclass(slots=True, eq=False)
class KernelCosts:
    """Cycles of kernels by key, and a guess for keys that were never compiled.

    The guess is the mean logarithm of known cycles, weighted by likeness of features
    (Nadaraya and Watson's estimator) and scaled by the bytes that are moved.
    A search picks what is guessed too low, so that guesses are raised by the mean error of
    those that were compiled, and by a margin before any was.
    errors: logarithms of estimates by guesses.
    """

    known: dict[str, float] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    guesses: dict[str, float] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)

    def learn(self, examples: Iterable[Example]) -> None:
        """Add kernels that were compiled."""
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
        """Predicted cycles of a program with these kernels."""
        return sum(k.runs * self.cycles_of(k) for k in kernels if not k.is_async)

    def least(self, kernels: Sequence[HloKernel]) -> float:
        """An optimistic prediction: unknown kernels cost one standard deviation less."""
        mean, spread = self._error()
        cheaper = math.exp(mean - spread - max(mean, 0.0))
        return sum(
            k.runs * self.cycles_of(k) * (1.0 if k.key in self.known else cheaper)
            for k in kernels
            if not k.is_async
        )

    def num_unknown(self, kernels: Sequence[HloKernel]) -> int:
        """The number of kernels that were never compiled."""
        return sum(k.key not in self.known and not k.is_async for k in kernels)

    def cycles_of(self, kernel: HloKernel) -> float:
        """Known or guessed cycles of one execution of a kernel."""
        if kernel.key in self.known:
            return self.known[kernel.key]
        if kernel.key not in self.guesses:
            self.guesses[kernel.key] = self._guess(kernel)
        return self.guesses[kernel.key] * math.exp(max(self._error()[0], 0.0))

    def _error(self) -> tuple[float, float]:
        """Mean and standard deviation of the errors of guesses."""
        count = len(self.errors) + _MARGIN_COUNT
        mean = sum(self.errors, _MARGIN * _MARGIN_COUNT) / count
        squares = sum((e - mean) ** 2 for e in self.errors)
        return mean, math.sqrt((squares + _MARGIN_COUNT * _SPREAD**2) / count)

    def _guess(self, kernel: HloKernel) -> float:
        if not self.examples:
            return _FLOOR
        features = np.array([each.features for each in self.examples])
        gaps = features - np.array(kernel.features)
        kinds = np.array([each.kind != kernel.kind for each in self.examples])
        distance = np.abs(gaps[:, 1:]).sum(1) + 0.3 * np.abs(gaps[:, 0])
        distance += _OTHER_KIND * kinds
        weights = np.exp(-(distance - distance.min()) / _WIDTH)
        # What the nearest kernels take for a byte, times the bytes of this one.
        logs = np.log([each.cycles for each in self.examples]) - gaps[:, 0]
        return float(np.exp((weights * logs).sum() / weights.sum()))


def async_bytes(kernels: Sequence[HloKernel]) -> float:
    """Bytes that asynchronous kernels, which have no estimate, write in one execution."""
    return sum(k.runs * k.num_bytes for k in kernels if k.is_async)


def same_program(kernels: Sequence[HloKernel]) -> Mapping[str, int]:
    """Executions of each kernel by key, and asynchronous bytes: equal at equal cost."""
    counts: dict[str, int] = {"async bytes": int(async_bytes(kernels))}
    for kernel in kernels:
        if not kernel.is_async:
            counts[kernel.key] = counts.get(kernel.key, 0) + kernel.runs
    return counts
