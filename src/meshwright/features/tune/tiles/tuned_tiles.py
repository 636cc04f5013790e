"""The result of tuning tile sizes: gains by kernel and in total, and a tuning spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import PlanError
from meshwright.plain import Frame

_FRAME = Frame(
    PlanError,
    "the text is no result of tuning tiles",
    {"format": "meshwright tiles", "version": 1},
)


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """One tuned kernel: its tile sizes, and its times with and without them.

    name: text with the kernel's main op, loop sizes and element type.
    fingerprint: hash of its text.
    tiles: tile sizes in IREE's syntax; "" if the default is best or nothing was tried.
    count: number of dispatches of the program that run the kernel.
    default_s, tuned_s: CPU seconds of one run.
    spread: (median - fastest) / fastest pass.
    measured: number of tilings that were measured, the default included.
    failed: number of these that did not compile.
    """

    name: str
    fingerprint: str
    tiles: str
    count: int
    default_s: float
    tuned_s: float
    spread: float
    measured: int
    failed: int

    @property
    def speed_up(self) -> float:
        return self.default_s / self.tuned_s

    def __str__(self) -> str:
        times = f" x{self.count}" if self.count > 1 else ""
        return (
            f"{self.name}{times}: {_ms(self.default_s)} -> {_ms(self.tuned_s)}, "
            f"{self.speed_up:.2f}x ± {100 * self.spread:.0f} % "
            f"({self.measured} measured, {self.failed} failed)"
        )


@dataclass(frozen=True, slots=True)
class TunedTiles:
    """The result of tuning tile sizes: the tuning spec, and its measured gain.

    default_s, tuned_s: CPU seconds of one run of the whole program, with IREE's tile
        sizes and with the tuned ones.
    spread: (median - fastest) / fastest pass, the larger of both programs'.
    kernels: kernels whose tile sizes can be chosen, the slowest first.
    others: dispatches whose tile sizes cannot be chosen, each with the reason.
    notes: remarks for the user.
    spec: the tuning spec for `iree-compile --iree-codegen-tuning-spec-path`; "" if the
        default is best.
    fn: the tuned function of the original's arguments, run by IREE; `None` if read from
        JSON.
    """

    name: str
    backend: str
    compiler: str
    cpu: str
    default_s: float
    tuned_s: float
    spread: float
    kernels: tuple[TunedKernel, ...]
    others: Mapping[str, str]
    notes: tuple[str, ...]
    spec: str
    seed: int
    fn: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    @property
    def speed_up(self) -> float:
        """Time of the program with IREE's tile sizes, divided by its tuned time."""
        return self.default_s / self.tuned_s

    def __call__(self, *args: Any) -> Any:
        """Run the tuned function with IREE, on one thread."""
        if self.fn is None:
            raise PlanError(
                "tiles read from JSON have no function; compile your program with the "
                "spec, or call mw.tune again with the journal of verdicts"
            )
        return self.fn(*args)

    def to_json(self) -> str:
        """JSON text of everything but the function; `from_json` is the inverse."""
        return _FRAME.write(self)

    @staticmethod
    def from_json(text: str) -> TunedTiles:
        """The tiles that `to_json` wrote; `PlanError` for any other text."""
        return _FRAME.read(TunedTiles, text)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(tuned: TunedTiles) -> Iterator[str]:
    yield f"{tuned.name} on {tuned.backend} ({tuned.compiler}, {tuned.cpu})"
    for kernel in tuned.kernels:
        yield f"  {kernel}"
    if tuned.others:
        yield f"  {len(tuned.others)} other dispatches keep IREE's tiles"
    yield from (f"  {note}" for note in tuned.notes)
    yield (
        f"end to end {_ms(tuned.default_s)} -> {_ms(tuned.tuned_s)}, "
        f"{tuned.speed_up:.3f}x ± {100 * tuned.spread:.1f} %"
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
