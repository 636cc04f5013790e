"""What is alive on one device while a program's units run in their order."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.program.ir import Value


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes alive while each unit runs, and what is alive where that is most.

    curve: by unit; the first entry is before any runs.
    peak: unit at which it is largest, -1 for before the first.
    alive: the values there, those of loops' bodies included, largest first.
    gaps_bytes: what a heap needs beyond the most that is alive, since blocks that die
        leave gaps into which others do not fit, and begin at round places.
    overwritten: values in whose place others come while they are read for the last time.
    beside_bytes: what addresses take, of arguments fetched ahead and of results that
        come several from one pass (compilers have as many to four times that, nine
        times where what they fetch is cut); copies of what is handed out as it came,
        without having been given up; and the most padding that one unit needs of what
        lies without.
    """

    curve: tuple[int, ...]
    peak: int
    alive: tuple[Value, ...]
    overwritten: frozenset[Value] = frozenset()
    gaps_bytes: int = 0
    beside_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """What a device must have."""
        return max(self.curve) + self.gaps_bytes + self.beside_bytes
