"""Pallas kernels as cost models see them: the operations and bytes of all grid steps.

A Pallas kernel runs once for each step of its grid. Within a step, straight-line code,
branches and loop bodies ("sections") run one after another. Within a section, the
matrix unit and the vector units work at the same time. The sharding rule of a kernel is in
`ops/movement/pallas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.program.ir import Op
from meshwright.program.rules.registry import NO_WORK, OpWork, work_of

KERNEL_PARAM = "kernel"
"""Name of the parameter in which a captured `pallas_call` stores its `PallasKernel`.

JAX does not know this parameter.
"""


@dataclass(frozen=True, slots=True)
class KernelSection:
    """The work of one branch or loop body of a kernel, over all its executions.

    products: matrix products on blocks, each with the number of times that it runs.
    rest: the work of all other ops.
    stored: number of elements written to scratch memory.
    """

    products: tuple[tuple[Op, int], ...] = ()
    rest: OpWork = NO_WORK
    stored: int = 0

    @property
    def work(self) -> OpWork:
        """The arithmetic work of all ops of this section, matrix products included."""
        return sum((work_of(op) * runs for op, runs in self.products), self.rest)

    def per_device(self, parts: int) -> KernelSection:
        """This section's work on one of `parts` devices that share the grid steps."""
        return KernelSection(
            tuple((op, runs // parts) for op, runs in self.products),
            OpWork(self.rest.flops // parts, self.rest.transcendentals // parts),
            self.stored // parts,
        )


@dataclass(frozen=True, slots=True)
class PallasKernel:
    """The work and traffic of one Pallas kernel, summed over all steps of its grid.

    steps: number of grid steps.
    sections: straight-line pieces of the kernel's code, which run one after another.
    num_bytes: bytes copied between main memory and the blocks in scratch memory.
    stated: the work that the kernel's author gives in `cost_estimate`, if any.
    """

    steps: int
    sections: tuple[KernelSection, ...]
    num_bytes: int
    stated: OpWork | None = None

    @property
    def counted(self) -> OpWork:
        """The work of all sections, as counted from the kernel's ops."""
        return sum((section.work for section in self.sections), NO_WORK)

    @property
    def work(self) -> OpWork:
        """The author's `cost_estimate`, or else the counted work."""
        return self.counted if self.stated is None else self.stated

    def per_device(self, parts: int) -> PallasKernel:
        """This kernel's work on one of `parts` devices that share the grid steps."""
        stated = self.stated
        return PallasKernel(
            self.steps // parts,
            tuple(section.per_device(parts) for section in self.sections),
            self.num_bytes // parts,
            stated and OpWork(stated.flops // parts, stated.transcendentals // parts),
        )


def kernel_of(op: Op) -> PallasKernel | None:
    """The Pallas kernel that an op calls.

    `None` if it calls none, or if the size of its grid is known only at run time.
    """
    found = op.params.get(KERNEL_PARAM)
    return found if isinstance(found, PallasKernel) else None


def without_kernel(params: Mapping[str, object]) -> dict[str, object]:
    """The parameters of an op without the one that holds its `PallasKernel`.

    JAX does not know that parameter, so that it must be removed before the primitive is
    called.
    """
    return {key: value for key, value in params.items() if key != KERNEL_PARAM}
