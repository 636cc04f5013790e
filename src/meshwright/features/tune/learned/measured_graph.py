"""A program with measured configurations: one record of a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import (
    NO_DIM,
    NUM_LAYOUT_FEATURES,
    NUM_TILE_FEATURES,
)
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.plain import Frame, plain


class Collection(Enum):
    """The compiler's choice that is varied: a kernel's tiling, or a program's layouts."""

    TILE = "tile"
    LAYOUT = "layout"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of measured times: compiler, machine, passes, failures.

    compiler, version, host: the compiler and the machine. columns: what the 24 or 18
        configuration features mean, if not what TpuGraphs says.
    default: number of the compiler's own configuration, if features do not tell it.
    pass_ns: one tuple per pass over all configurations, in their order.
    errors: configurations that failed, with the error; they have no row in the arrays.
    kernel: texts from which the compiler's kernel can be made again, by name.
    """

    compiler: str
    version: str = ""
    host: str = ""
    columns: str = ""
    default: int | None = None
    pass_ns: tuple[tuple[int, ...], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    kernel: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def spread(self) -> tuple[float, ...]:
        """The noise of each configuration: slowest over fastest pass, minus 1."""
        columns = zip(*self.pass_ns, strict=True)
        return tuple((max(times) - min(times)) / min(times) for times in columns)

    def to_json(self) -> str:
        """The provenance as JSON text; it also has the noise of each configuration."""
        fields = plain(self)
        errors, kernel = fields.pop("errors"), fields.pop("kernel")
        fields["spread"] = [round(share, 4) for share in self.spread]
        fields["errors"] = errors
        return PROVENANCE.write(fields | ({"kernel": kernel} if kernel else {}))


PROVENANCE = Frame(
    LearnedError,
    "this is no valid provenance of a data set",
    derived=("spread",),
    indent=1,
)
"""JSON texts of `Provenance`."""

TPU_GRAPHS = Provenance("TPU compiler", host="TPU v3", columns="as TpuGraphs")


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredGraph:
    """A program or kernel with c configurations, and the time that each one took.

    config_feat: [c, 24] tilings, or [c, nc, 18] layouts of the nc nodes `config_nodes`,
        which is `None` for tilings.
    runtime_ns: [c], `None` if unknown, as in TpuGraphs' test files.
    normalizer_ns: [c], the default configuration's time in the same session, for tilings.
    """

    name: str
    graph: HloGraph
    config_feat: NDArray[np.float32]
    config_nodes: NDArray[np.int64] | None
    runtime_ns: NDArray[np.int64] | None
    normalizer_ns: NDArray[np.int64] | None = None
    provenance: Provenance = field(default=TPU_GRAPHS)

    def __post_init__(self) -> None:
        nodes, n = self.config_nodes, self.graph.num_nodes
        row = (NUM_TILE_FEATURES,)
        if nodes is not None:
            row = (len(nodes), NUM_LAYOUT_FEATURES)
            if len(nodes) and not (nodes.min() >= 0 and nodes.max() < n):
                raise LearnedError(
                    f"{self.name}: configurable nodes go from {nodes.min()} to "
                    f"{nodes.max()}: expected numbers from 0 to {n - 1}"
                )
        if self.config_feat.shape[1:] != row:
            raise LearnedError(
                f"{self.name}: configurations of shape {self.config_feat.shape[1:]}: "
                f"expected {row}"
            )
        for times in (self.runtime_ns, self.normalizer_ns):
            if times is not None and times.shape != (self.num_configs,):
                raise LearnedError(
                    f"{self.name}: {times.shape} times for {self.num_configs} "
                    "configurations: expected one each"
                )
            if times is not None and times.size and times.min() <= 0:
                raise LearnedError(
                    f"{self.name}: a time of {times.min()} ns: expected positive times"
                )

    def __str__(self) -> str:
        graph = self.graph
        return (
            f"{self.name}: {graph.num_nodes} nodes, {len(graph.edge_index)} edges, "
            f"{self.num_configs} configurations"
        )

    @property
    def collection(self) -> Collection:
        return Collection.TILE if self.config_nodes is None else Collection.LAYOUT

    @property
    def layout_nodes(self) -> NDArray[np.int64]:
        """The nodes [nc] whose layouts are chosen; empty for tilings."""
        none = np.zeros(0, np.int64)
        return none if self.config_nodes is None else self.config_nodes

    @property
    def num_configs(self) -> int:
        return len(self.config_feat)

    @property
    def targets(self) -> NDArray[np.float64]:
        """The times [c] that models rank, divided by the default's time if it is known."""
        if self.runtime_ns is None:
            raise LearnedError(
                f"{self.name} has no runtimes, as files of TpuGraphs' test split: use the "
                "splits train and valid"
            )
        times = self.runtime_ns.astype(np.float64)
        return times if self.normalizer_ns is None else times / self.normalizer_ns

    @property
    def default_config(self) -> int | None:
        """The index of the compiler's own configuration; `None` if it is unknown."""
        if self.provenance.default is not None:
            return self.provenance.default
        if self.collection is Collection.LAYOUT:
            is_default = (self.config_feat == NO_DIM).all(axis=(1, 2))
            found = np.flatnonzero(is_default)
            return int(found[0]) if len(found) else None
        if self.normalizer_ns is None or self.runtime_ns is None:
            return None
        return int(np.argmin(np.abs(self.targets - 1)))

    def speedup(self) -> float:
        """The default's time over the shortest time; NaN if the default is unknown."""
        default = self.default_config
        times = self.targets
        return math.nan if default is None else float(times[default] / times.min())
