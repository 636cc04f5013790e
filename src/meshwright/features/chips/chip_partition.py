"""The result of partitioning a program over chips.

It has the chip of each op, throughput, bottleneck and memory.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from meshwright.errors import ChipsError
from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.picture import draw_page, draw_svg
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.problem.load import ChipLoad, load_of, read_columns
from meshwright.machine.memory_size import show_bytes
from meshwright.plain import Frame, hints_of
from meshwright.search.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class ChipPartition:
    """Ops of a graph on the chips of a module, checked against all constraints.

    chips: chip of each op, in the order of the graph.
    bound_s: lower bound on the bottleneck of every partition, in seconds.
    is_optimal: whether the search proved that no partition has a shorter bottleneck.
    found_by: name of the method that found the partition.
    evaluations: number of partitions whose bottleneck was computed.
    seconds: duration of the search.
    load: seconds of each chip and link, and memory; computed from the other fields.
    """

    graph: ChipGraph = field(repr=False)
    module: ChipModule
    chips: tuple[int, ...] = field(repr=False)
    bound_s: float
    is_optimal: bool
    found_by: str
    evaluations: int
    seconds: float
    load: ChipLoad = field(init=False, repr=False)

    def __post_init__(self) -> None:
        chips: Ints = np.array(self.chips, np.int64)
        for fault in violations(self.graph, chips, self.module.num_chips):
            raise ChipsError(f"this is no valid partition: {fault}")
        load = load_of(read_columns(self.graph), self.module, chips)
        if not load.fits:
            raise ChipsError(
                f"chip {int(load.memory_bytes.argmax())} needs {load.memory_bytes.max()} "
                f"bytes and has {self.module.memory_bytes:.0f}"
            )
        object.__setattr__(self, "load", load)

    @property
    def bottleneck_s(self) -> float:
        """Seconds between two results of the full pipeline.

        They are the seconds of the busiest chip or link.
        """
        return self.load.bottleneck_s

    @property
    def throughput(self) -> float:
        """Results per second of the full pipeline.

        It is infinite for a program that takes no time.
        """
        return 1 / self.bottleneck_s if self.bottleneck_s else np.inf

    @property
    def num_used(self) -> int:
        """The number of chips in use."""
        return max(self.chips) + 1

    @property
    def bottleneck(self) -> str:
        """The name of the busiest chip or link, such as "chip 3"."""
        chip, link = self.load.chip_s, self.load.link_s
        if chip.max() >= link.max(initial=0.0):
            return f"chip {int(chip.argmax())}"
        return f"the link from chip {int(link.argmax())} to {int(link.argmax()) + 1}"

    @property
    def by_op(self) -> tuple[tuple[str, int], ...]:
        """Each op's name and chip, in topological order."""
        return tuple(zip(self.graph.names, self.chips, strict=True))

    def __str__(self) -> str:
        graph, load = self.graph, self.load
        count = Counter(self.chips)
        edge = (
            "optimal" if self.is_optimal else f"at most {self._gap():.1%} from optimal"
        )
        largest = int(load.memory_bytes.argmax())
        lines = [
            f"module      {self.module.name}, {self.module.num_chips} chips of "
            f"{show_bytes(int(self.module.memory_bytes))}",
            f"program     {graph.num_ops} ops, {graph.seconds.sum():.3e} s on one chip",
            f"throughput  {self.throughput:.6g} per second, "
            f"{graph.seconds.sum() * self.throughput:.2f} times one chip ({edge})",
            f"bottleneck  {self.bottleneck}, {self.bottleneck_s:.3e} s",
            f"chips used  {self.num_used}, with {min(count.values())} to "
            f"{max(count.values())} ops each",
            f"links       busiest {load.link_s.max(initial=0.0):.3e} s",
            f"memory      {show_bytes(int(load.memory_bytes.max()))} on chip {largest}, "
            "the most of all",
            f"found by    {self.found_by}, {self.evaluations} partitions priced in "
            f"{self.seconds:.1f} s",
        ]
        return "\n".join(lines)

    def _gap(self) -> float:
        return self.bottleneck_s / self.bound_s - 1 if self.bound_s else 0.0

    def to_csv(self) -> str:
        """The partition as CSV, with a row per op: its name, seconds and chip."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["op", "seconds", "chip"])
        seconds = self.graph.seconds.tolist()
        writer.writerows(zip(self.graph.names, seconds, self.chips, strict=True))
        return text.getvalue()

    def to_json(self) -> str:
        """The partition as JSON, which `from_json` reads.

        The figures for each chip are only for human readers.
        """
        graph, load = (
            {n: np.asarray(getattr(record, n)).tolist() for n in names}
            for record, names in ((self.graph, hints_of(ChipGraph)), (self.load, _LOAD))
        )
        own = {name: getattr(self, name) for name in _OWN}
        figures = {name: getattr(self, name) for name in _FIGURES} | load
        return _FRAME.write({**own, **figures, "module": self.module, "graph": graph})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The partition that `to_json` wrote; the constraints are checked again."""
        return _FRAME.read(cls, text)

    def svg(self) -> str:
        """A picture in SVG: seconds and memory of each chip, seconds of each link."""
        return draw_svg(self.load, self.module)

    def report(self, path: str | Path) -> Path:
        """Write an HTML page with figures, picture and the ops of each chip.

        Returns its path.
        """
        file = Path(path)
        file.write_text(self._page(), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        return self._page()

    def _page(self) -> str:
        return draw_page(str(self), self.svg(), self.by_op)


def _read_graph(entry: Any, path: str) -> ChipGraph:
    """The graph in plain data: a list per field, those of pairs [n, 2]."""
    del path
    pairs = ("reads", "weight_reads")
    rest = {n: np.array(e, np.int64) for n, e in entry.items() if n not in _GRAPH}
    rest |= {n: rest[n].reshape(-1, 2) for n in pairs}
    seconds = np.array(entry["seconds"], np.float64)
    return ChipGraph(tuple(entry["names"]), seconds, **rest)


_GRAPH = ("names", "seconds")
"""Fields of a graph that have no integers."""

_OWN = (
    "chips", "bound_s", "is_optimal", "found_by", "evaluations", "seconds"
)  # fmt: skip
_LOAD = ("chip_s", "link_s", "memory_bytes")
_FIGURES = ("throughput", "bottleneck", "bottleneck_s")
_FRAME = Frame(
    ChipsError,
    "this is no saved partition",
    derived=(*_FIGURES, *_LOAD),
    prepare={ChipGraph: _read_graph},
    indent=1,
)
