"""Pallas kernels as cost models see them: the operations and bytes of all grid steps.

A kernel runs once for each step of its grid. Within a step its branches and loop bodies
run one after another; within each of those the matrix and vector units overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.program.ir import Op
from meshwright.program.rules.registry import NO_WORK, OpWork, work_of

KERNEL_PARAM = "kernel"
"""The parameter in which a captured op stores its `PallasKernel`, unknown to JAX."""


@dataclass(frozen=True, slots=True)
class KernelSection:
    """All executions of one straight-line section of a kernel: a branch or a loop body.

    products: contractions of blocks, and how often each runs.
    rest: the work of all other ops.
    stored: elements written to scratch memory.
    """

    products: tuple[tuple[Op, int], ...] = ()
    rest: OpWork = NO_WORK
    stored: int = 0

    @property
    def work(self) -> OpWork:
        """The work of all ops, products included."""
        return sum((work_of(op) * runs for op, runs in self.products), self.rest)

    def per_device(self, parts: int) -> KernelSection:
        """The share of one of `parts` devices."""
        return KernelSection(
            tuple((op, runs // parts) for op, runs in self.products),
            OpWork(self.rest.flops // parts, self.rest.transcendentals // parts),
            self.stored // parts,
        )


@dataclass(frozen=True, slots=True)
class PallasKernel:
    """All steps of a kernel's grid together.

    sections: the parts of a step, which run one after another.
    num_bytes: bytes copied between main memory and the blocks in scratch memory.
    stated: the work that the kernel's author states in `cost_estimate`, if any.
    """

    steps: int
    sections: tuple[KernelSection, ...]
    num_bytes: int
    stated: OpWork | None = None

    @property
    def counted(self) -> OpWork:
        """The work of all sections."""
        return sum((section.work for section in self.sections), NO_WORK)

    @property
    def work(self) -> OpWork:
        """The stated work; if there is none, the counted work."""
        return self.counted if self.stated is None else self.stated

    def per_device(self, parts: int) -> PallasKernel:
        """The kernel of one of `parts` devices that share the steps evenly."""
        stated = self.stated
        return PallasKernel(
            self.steps // parts,
            tuple(section.per_device(parts) for section in self.sections),
            self.num_bytes // parts,
            stated and OpWork(stated.flops // parts, stated.transcendentals // parts),
        )


def kernel_of(op: Op) -> PallasKernel | None:
    """The kernel that an op calls; `None` if it calls none, or if its grid is unknown."""
    found = op.params.get(KERNEL_PARAM)
    return found if isinstance(found, PallasKernel) else None


def without_kernel(params: Mapping[str, object]) -> dict[str, object]:
    """The parameters of an op without the one that JAX does not know."""
    return {key: value for key, value in params.items() if key != KERNEL_PARAM}
