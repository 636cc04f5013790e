"""Exact offsets for the heap of a simulated step, beside the compiler's own packing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.features.allocate import Allocation, Buffer, allocate
from meshwright.machine.memory_size import show_bytes
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.estimate import Estimate, heap_of_step
from meshwright.program.ir import Value
from meshwright.program.ir.values import show_type

if TYPE_CHECKING:
    from meshwright.partitioner.decide import Decided


@dataclass(frozen=True, slots=True)
class ExactOffsets:
    """Offsets of the buffers of a step on one device, and the bytes that they save.

    usable_bytes: memory that a device gives to programs.
    fixed_bytes: bytes of arguments and constants.
    extra_bytes: bytes outside of the heap, as in `MemoryCurve`.
    compiler_bytes: size of the heap by the compiler's own heuristic.
    allocation: the packing that was searched for. Its times count fusions in their order; a
        loop's fusions count for one iteration.
    """

    usable_bytes: int
    fixed_bytes: int
    extra_bytes: int
    compiler_bytes: int
    allocation: Allocation = field(repr=False)

    @property
    def heap_bytes(self) -> int:
        """Size of the heap with the better of both packings."""
        return min(self.compiler_bytes, self.allocation.height or self.compiler_bytes)

    @property
    def gained_bytes(self) -> int:
        """Bytes by which our packing is lower than the compiler's; 0 if it is not."""
        return self.compiler_bytes - self.heap_bytes

    @property
    def peak_bytes(self) -> int:
        """Bytes that a device must have."""
        return self.fixed_bytes + self.heap_bytes + self.extra_bytes

    @property
    def fits(self) -> bool:
        """Whether the step fits with the better of both packings."""
        return self.peak_bytes <= self.usable_bytes

    @property
    def fits_only_so(self) -> bool:
        """Whether the step fits with these offsets, and not with the compiler's."""
        return self.fits and self.peak_bytes + self.gained_bytes > self.usable_bytes

    def __str__(self) -> str:
        bound = self.allocation.bound
        verdict = "fits" if self.fits else "does not fit"
        if self.fits_only_so:
            verdict = "fits only with these offsets"
        return "\n".join(
            [
                f"outcome    {verdict}: {show_bytes(self.peak_bytes)} of "
                f"{show_bytes(self.usable_bytes)}",
                f"gained     {self.gained_bytes} bytes",
                f"heap       {self.heap_bytes} bytes, by the compiler "
                f"{self.compiler_bytes}; none is below {bound}",
                f"arguments  {show_bytes(self.fixed_bytes)}",
                f"outside    {show_bytes(self.extra_bytes)}",
                f"buffers    {len(self.allocation.buffers)}",
            ]
        )

    def to_csv(self) -> str:
        """MiniMalloc's CSV of the buffers, with a column `offset`."""
        return self.allocation.to_csv()


def exact_offsets(
    decided: Decided, estimated: Estimate, seconds: float = 10.0, seed: int = 0
) -> ExactOffsets:
    """Search for offsets of the buffers in the heap of a simulated step.

    estimated: the estimate of `decided` on a machine.
    """
    heap = heap_of_step(decided, estimated)
    machine, memory = estimated.machine, estimated.memory
    policy = compiler_of(machine).buffers
    owned, _ = heap.in_time()
    buffers = [
        Buffer(
            f"{number} {_names(values)}",
            interval.start,
            interval.end + 1,
            _aligned(interval.size, policy.alignment_bytes),
        )
        for number, (interval, values) in enumerate(owned)
        if interval.size
    ]
    allocation = allocate(buffers, minimize=True, seconds=seconds, seed=seed)
    fixed = memory.curve[0]
    compiler_bytes = max(memory.curve) - fixed + memory.fragmentation_bytes
    usable = int(machine.chip.usable_bytes)
    return ExactOffsets(usable, fixed, memory.extra_bytes, compiler_bytes, allocation)


def _aligned(size: int, step: int) -> int:
    return -(-size // step) * step if step else size


def _names(values: tuple[Value, ...]) -> str:
    return " ".join(show_type(v.shape, v.dtype) for v in values[:1]) or "scratch"
