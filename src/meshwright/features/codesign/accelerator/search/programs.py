"""TracedTargets of a search, traced once for each batch that a candidate asks for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.workload.layers import (
    Workload,
    workload_of,
)
from meshwright.features.codesign.nas.cost.latency_command import made_with


@dataclass(slots=True)
class TracedTargets:
    """Targets by name; those that take `batch` are traced with the batch of a design.

    targets: as on the command line, `path.py[:name]`.
    """

    targets: Sequence[str]
    known: dict[int, tuple[Workload, ...]] = field(
        default_factory=dict[int, tuple[Workload, ...]]
    )

    def __post_init__(self) -> None:
        if not self.targets:
            raise AcceleratorError("a search for a design wants one target or more")

    @property
    def has_batch(self) -> bool:
        """Whether all targets take `batch`."""
        return all(_takes_batch(_found(text)) for text in self.targets)

    def at(self, batch: int) -> tuple[Workload, ...]:
        """The layers of each target, for calls of `batch` examples where it takes one."""
        if batch not in self.known:
            self.known[batch] = tuple(_traced(text, batch) for text in self.targets)
        return self.known[batch]

    def digests(self) -> list[str]:
        """A short text for each program that tells it from others, whatever its lines."""
        return [workload.digest for workload in self.at(1)]

    def __getstate__(self) -> tuple[Sequence[str]]:
        return (self.targets,)

    def __setstate__(self, state: tuple[Sequence[str]]) -> None:
        (self.targets,) = state
        self.known = {}


def _found(text: str) -> Target:
    return find_target(text, is_inference=True)


def _takes_batch(target: Target) -> bool:
    try:
        inspect.signature(target.make).bind(batch=1)
    except TypeError:
        return False
    return True


def _traced(text: str, batch: int) -> Workload:
    target = _found(text)
    fn, args = made_with(target, {"batch": batch} if _takes_batch(target) else {})
    return workload_of(fn, args, text)
