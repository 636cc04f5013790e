"""Bytes that are live on one device while a program's fusions run in their order.

`buffer_assignment.py` computes the curve, `app/report/timeline.py` draws it.
"""

from dataclasses import dataclass

from meshwright.program.ir import Value


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Live bytes of one run of a device program, and the values that are live at the peak.

    curve: bytes during each fusion; the first entry is before any fusion runs.
    peak: number of the fusion at which the curve is largest, -1 for before the first.
    alive: values that are live at the peak, also those of loop bodies, largest first.
    fragmentation_bytes: bytes that the heap needs beyond the largest sum of live
        buffers. Buffers that die leave gaps into which others do not fit, and offsets
        are aligned.
    overwritten: values whose memory another value takes at their last read.
    reserved: results that have their memory from before the first fusion.
    extra_bytes: memory outside of the heap, which is the sum of
        - address tables, for each argument that is prefetched and each kernel with
        several results. Compilers have one to four times as many, up to nine times if
        the prefetched arguments are partitioned;
        - copies of arguments that are returned unchanged and were not donated;
        - the largest padding that one fusion adds to values that are stored compacted.
    """

    curve: tuple[int, ...]
    peak: int
    alive: tuple[Value, ...]
    overwritten: frozenset[Value] = frozenset()
    reserved: frozenset[Value] = frozenset()
    fragmentation_bytes: int = 0
    extra_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """Bytes that a device must have."""
        return max(self.curve) + self.fragmentation_bytes + self.extra_bytes
