"""A netlist: blocks (macros, ports, standard cells), their pins, and the nets between."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from meshwright.errors import FloorplanError, did_you_mean
from meshwright.features.codesign.floorplan.netlist.protobuf import (
    NetlistNode,
    read_nodes,
    write_nodes,
)
from meshwright.search.arrays import Floats


class NodeKind(Enum):
    """What a node is. Pins belong to macros; every other node is a block."""

    MACRO = "macro"
    SOFT = "soft macro"
    PIN = "pin"
    PORT = "port"
    CELL = "standard cell"


_TYPES = {
    "macro": NodeKind.MACRO,
    "macro_pin": NodeKind.PIN,
    "port": NodeKind.PORT,
    "stdcell": NodeKind.CELL,
}
_METADATA = "__metadata__"
_GROUP = "Grp_"
"""Beginning of the names of soft macros, which are clusters of standard cells."""


@dataclass(frozen=True, eq=False)
class Netlist:
    """The nodes of a chip's netlist, checked: every name that they mention exists.

    nodes: in the order of the file, without the metadata. A placement names them by their
        index here.
    kinds: kind of each node.
    owners: for a pin the index of its macro, for other nodes their own index.
    sinks: indices of the nodes that each node drives; empty for most.
    metadata: the node of metadata, if the file has one.
    path: file that was read.
    """

    nodes: tuple[NetlistNode, ...] = field(repr=False)
    kinds: tuple[NodeKind, ...] = field(repr=False)
    owners: tuple[int, ...] = field(repr=False)
    sinks: tuple[tuple[int, ...], ...] = field(repr=False)
    metadata: NetlistNode | None = field(default=None, repr=False)
    path: Path | None = None

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Indices of the nodes that have a place of their own: all but pins."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind is not NodeKind.PIN)

    @cached_property
    def block_of(self) -> dict[int, int]:
        """The position in `blocks` of each block, by index of the node."""
        return {index: block for block, index in enumerate(self.blocks)}

    @cached_property
    def block_of_name(self) -> dict[str, int]:
        """The position in `blocks` of each block, by name."""
        return {self.nodes[i].name: block for block, i in enumerate(self.blocks)}

    def block(self, name: str) -> int:
        """The position in `blocks` of a block; fails for an unknown name."""
        if name not in self.block_of_name:
            near = did_you_mean(name, self.block_of_name)
            raise FloorplanError(f"the netlist has no block {name!r}{near}")
        return self.block_of_name[name]

    def blocks_of(self, *kinds: NodeKind) -> list[int]:
        """Positions in `blocks` of the blocks of some kinds."""
        return [b for b, i in enumerate(self.blocks) if self.kinds[i] in kinds]

    def number(self, key: str, indices: Iterable[int]) -> Floats:
        """An attribute of nodes as numbers; 0 if it is missing."""
        return np.array([_number(self.nodes[i], key, 0.0) for i in indices], np.float64)

    @cached_property
    def area(self) -> float:
        """Square microns of all macros, soft macros and standard cells."""
        width, height = (self.number(key, self.blocks) for key in ("width", "height"))
        return float(width @ height)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.kinds.count(k)} {k.value}s" for k in NodeKind)
        return f"netlist of {counts}, {sum(map(bool, self.sinks))} nets"

    def to_text(self) -> str:
        """The netlist as text protobuf, with every attribute as it was read."""
        head = () if self.metadata is None else (self.metadata,)
        return write_nodes((*head, *self.nodes))


def read(path: str | PathLike[str]) -> Netlist:
    """The netlist in a text protobuf, `.pb.txt` or `.pb.txt.gz`."""
    return make_netlist(read_nodes(Path(path)), Path(path))


def make_netlist(nodes: Sequence[NetlistNode], path: Path | None = None) -> Netlist:
    """The netlist of nodes; fails if they do not fit together."""
    metadata = next((node for node in nodes if node.name == _METADATA), None)
    nodes = [node for node in nodes if node.name != _METADATA]
    if not nodes:
        raise FloorplanError(f"{path or 'the netlist'} has no nodes")
    index: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if node.name in index:
            first = nodes[index[node.name]].line
            raise _fault(node, f"is defined twice, at line {first} too")
        index[node.name] = number
    kinds = _kinds(nodes)
    owners = [
        i if k is not NodeKind.PIN else _owner(nodes[i], index)
        for i, k in enumerate(kinds)
    ]
    for node, owner, kind in zip(nodes, owners, kinds, strict=True):
        if kinds[owner] is NodeKind.PIN or (
            kinds[owner] is NodeKind.PORT and kind is NodeKind.PIN
        ):
            raise _fault(node, f"belongs to {nodes[owner].name!r}, which is no macro")
        _check_numbers(node, kind)
    sinks = tuple(_sinks(node, index, kinds) for node in nodes)
    return Netlist(tuple(nodes), kinds, tuple(owners), sinks, metadata, path)


def _fault(node: NetlistNode, what: str) -> FloorplanError:
    return FloorplanError(f"node {node.name!r} at line {node.line} {what}")


def _kinds(nodes: Sequence[NetlistNode]) -> tuple[NodeKind, ...]:
    """The kind of each node.

    Types are spelled in upper or lower case. A soft macro is named `Grp_*`; in a file with
    both spellings it may also be spelled in lower case among macros in upper case.
    """
    types = [node.text("type") or "" for node in nodes]
    is_mixed = "MACRO" in types and "macro" in types
    kinds: list[NodeKind] = []
    for node, name in zip(nodes, types, strict=True):
        kind = _TYPES.get(name.lower())
        if kind is None:
            known = ", ".join(_TYPES).upper()
            raise _fault(node, f"has the type {name!r}; wanted one of {known}")
        is_soft = node.name.startswith(_GROUP) or (is_mixed and name == "macro")
        kinds.append(NodeKind.SOFT if kind is NodeKind.MACRO and is_soft else kind)
    return tuple(kinds)


def _owner(node: NetlistNode, index: dict[str, int]) -> int:
    name = node.text("macro_name")
    if name is None:
        raise _fault(node, "is a pin and names no macro (attribute macro_name)")
    if name not in index:
        raise _fault(node, f"is a pin of {name!r}, which the netlist lacks")
    return index[name]


def _sinks(
    node: NetlistNode, index: dict[str, int], kinds: Sequence[NodeKind]
) -> tuple[int, ...]:
    missing = [name for name in node.inputs if name not in index]
    if missing:
        near = did_you_mean(missing[0], index) if len(index) < 10_000 else ""
        raise _fault(node, f"drives {missing[0]!r}, which the netlist lacks{near}")
    sinks = tuple(index[name] for name in node.inputs)
    for each in sinks:
        if kinds[each] in (NodeKind.MACRO, NodeKind.SOFT):
            raise _fault(
                node,
                f"drives the macro {node.inputs[sinks.index(each)]!r}, not a pin of it",
            )
    return sinks


def _check_numbers(node: NetlistNode, kind: NodeKind) -> None:
    """Fail for attributes that are no finite numbers, or sizes that are not above zero."""
    for key in ("x", "y", "x_offset", "y_offset", "weight"):
        _number(node, key, 0.0)
    if _number(node, "weight", 1.0) < 0:
        raise _fault(node, f"has the negative weight {node.text('weight')}")
    if kind in (NodeKind.MACRO, NodeKind.SOFT):
        for key in ("width", "height"):
            if not _number(node, key, 0.0) > 0:
                raise _fault(node, f"has the {key} {node.text(key)}; wanted above 0")


def _number(node: NetlistNode, key: str, default: float) -> float:
    text = node.text(key)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _fault(node, f"has the {key} {text!r}; wanted a number")
    return value
