"""Compiles a kernel with chosen tile sizes, checks its results and times it.

Kernels run on one thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import CompilerError
from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.spec import tuning_spec
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.iree.toolchain import (
    CompilePhase,
    compile_program,
    fetch,
    load,
    place,
)

_MIN_RUN_S = 0.01
"""CPU seconds of one timing: 1000 times what a call of IREE's runtime takes."""
_TOLERANCE = 1e-4
"""Share of the largest result by which float32 sums in another order may differ."""

_DTYPES: Mapping[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}


@dataclass(slots=True, eq=False)
class KernelBench:
    """One kernel with its inputs, compiled variants, and the results of IREE's default.

    dispatch: the kernel's text in IREE's form before it chooses tile sizes.
    programs: the compiled variant for each tiling; `None` stands for IREE's default.
    expected: results of the default, with which other variants are compared.
    """

    kernel: CpuKernel
    seed: int
    timeout_s: float = 30.0
    dispatch: str = field(init=False)
    programs: dict[Tiling | None, Callable[[], Any]] = field(default_factory=dict)
    expected: list[NDArray[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dispatch = compile_program(self.kernel.text, CompilePhase.SOURCES).decode()
        self.build(None)

    def build(self, tiling: Tiling | None) -> None:
        """Compile the kernel with these tile sizes, and check its results.

        Raises `CompilerError` if it does not compile, or computes other numbers than
        the default.
        """
        if tiling in self.programs:
            return
        code = self._code(tiling)
        inputs, function = place(random_inputs(self.kernel, self.seed)), load(code)
        results = fetch(function(*inputs))
        self.expected = self.expected or results
        if not all(map(is_close, results, self.expected)):
            raise CompilerError("other numbers than the default's")
        self.programs[tiling] = lambda: function(*inputs)

    def _code(self, tiling: Tiling | None) -> bytes:
        compile_to = partial(
            compile_program,
            self.dispatch,
            since=CompilePhase.SOURCES,
            spec="" if tiling is None else tuning_spec({self.kernel: tiling}),
            timeout_s=self.timeout_s,
        )
        if (
            tiling is not None and len(self.programs) == 1
        ):  # the first after the default
            self._require_taken(tiling, compile_to(CompilePhase.CONFIGURATIONS))
        return compile_to(CompilePhase.CODE)

    def _require_taken(self, tiling: Tiling, configured: bytes) -> None:
        """Raise unless IREE has given the root op the tile sizes of the tuning spec."""
        if tiling.attribute.encode() not in configured:
            raise CompilerError(
                f"IREE does not match {self.kernel.op} of {self.kernel} with its own "
                "text: its tiles cannot be chosen by a tuning spec"
            )

    def times(
        self, tilings: Sequence[Tiling | None], passes: int, seed: int
    ) -> Mapping[Tiling | None, list[int]]:
        """CPU nanoseconds of one run, for each tiling and pass."""
        return timed_passes({t: self.programs[t] for t in tilings}, passes, seed)


def random_inputs(kernel: CpuKernel, seed: int) -> list[NDArray[Any]]:
    """Arguments of a kernel: normally distributed floats, or small integers."""
    draw = np.random.default_rng(seed)
    inputs: list[NDArray[Any]] = []
    for element, shape in kernel.arguments:
        if element in _DTYPES:
            normal = draw.standard_normal(shape, np.float32)
            inputs.append(normal.astype(_DTYPES[element]))
        else:
            bits = int(element.lstrip("isu"))
            high = 2 if bits == 1 else 3
            inputs.append(draw.integers(0, high, shape).astype(f"int{max(8, bits)}"))
    return inputs


def is_close(result: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether results differ by no more than another order of additions explains."""
    share = max(_TOLERANCE, 64 * 2.0 ** -_mantissa_bits(result.dtype))
    return is_within(result, expected, share)


def is_within(result: NDArray[Any], expected: NDArray[Any], share: float) -> bool:
    """Whether a result differs from the expected one by a share of the largest number."""
    if result.shape != expected.shape:
        return False
    arrays = result, expected
    one, other = (np.asarray(x, np.result_type(x, np.float32)) for x in arrays)
    scale = float(np.max(np.abs(other), initial=0, where=np.isfinite(other)))
    return bool(np.allclose(one, other, rtol=0, atol=share * scale, equal_nan=True))


def _mantissa_bits(dtype: Any) -> int:
    return {2: 8, 4: 23, 8: 52}.get(np.dtype(dtype).itemsize, 23)


def timed_passes[K](
    runs: Mapping[K, Callable[[], Any]], passes: int, seed: int
) -> dict[K, list[int]]:
    """CPU nanoseconds of one run in each pass, by the key of what runs.

    Each pass runs all in random order.
    """
    draw, order = random.Random(seed), list(runs)
    times: dict[K, list[int]] = {key: [] for key in runs}
    for _ in range(passes):
        draw.shuffle(order)
        for key in order:
            times[key].append(thread_ns(runs[key]))
    return times


def thread_ns(run: Callable[[], Any]) -> int:
    """Mean CPU nanoseconds of one run in this thread, over as many runs as fill 10 ms."""
    runs, start_ns = 0, time.thread_time_ns()
    while True:
        run()
        runs += 1
        spent_ns = time.thread_time_ns() - start_ns
        if spent_ns >= _MIN_RUN_S * 1e9:
            return max(1, spent_ns // runs)
