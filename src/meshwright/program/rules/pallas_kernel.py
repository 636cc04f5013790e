"""What a hand-written kernel does on one device, as far as a cost model asks.

A kernel runs once for each step of its grid; inside, branches and loops follow one
another, and in each of them the units of the chip work side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshwright.program.ir import Op
from meshwright.program.rules.work import NO_WORK, OpWork, work_of

NOTE = "kernel"
"""The parameter under which a captured op has its `PallasKernel`; no primitive knows it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A branch or loop body of a kernel, all its executions together.

    products: contractions of blocks, and how often each runs. rest: the work of all
    else. stored: elements written to scratch memory.
    """

    products: tuple[tuple[Op, int], ...] = ()
    rest: OpWork = NO_WORK
    stored: int = 0

    @property
    def work(self) -> OpWork:
        """That of the products too."""
        return sum((work_of(op) * runs for op, runs in self.products), self.rest)

    def shared(self, parts: int) -> Stretch:
        """What one of `parts` devices does of it."""
        return Stretch(
            tuple((op, runs // parts) for op, runs in self.products),
            OpWork(self.rest.flops // parts, self.rest.transcendentals // parts),
            self.stored // parts,
        )


@dataclass(frozen=True, slots=True)
class PallasKernel:
    """All steps of a kernel's grid.

    stretches: one after another in each step. num_bytes: what passes between main
    memory and the blocks in scratch memory. told: the work as the kernel's author has
    it, None for what the stretches come to.
    """

    steps: int
    stretches: tuple[Stretch, ...]
    num_bytes: int
    told: OpWork | None = None

    @property
    def counted(self) -> OpWork:
        """What the stretches come to."""
        return sum((stretch.work for stretch in self.stretches), NO_WORK)

    @property
    def work(self) -> OpWork:
        """As told, else as counted."""
        return self.counted if self.told is None else self.told

    def shared(self, parts: int) -> PallasKernel:
        """What one of `parts` devices does that share the steps evenly."""
        told = self.told
        return PallasKernel(
            self.steps // parts,
            tuple(stretch.shared(parts) for stretch in self.stretches),
            self.num_bytes // parts,
            told and OpWork(told.flops // parts, told.transcendentals // parts),
        )


def kernel_of(op: Op) -> PallasKernel | None:
    """What is known of the kernel that an op calls; None for ops that call none."""
    found = op.params.get(NOTE)
    return found if isinstance(found, PallasKernel) else None


def noted(op: Op, kernel: PallasKernel) -> Op:
    """The op with what its kernel does."""
    return replace(op, params={**op.params, NOTE: kernel})


def without_note(params: Mapping[str, object]) -> dict[str, object]:
    """The parameters that the primitive itself knows."""
    return {key: value for key, value in params.items() if key != NOTE}
