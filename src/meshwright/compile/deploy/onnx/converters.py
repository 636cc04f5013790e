"""The registry of converters, and what a converter is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.compile.deploy.onnx.graph import OnnxGraph
from meshwright.program.ir import Op


@dataclass(frozen=True, slots=True)
class OpCall:
    """An op, the names of its operands, and the graph that gets its nodes."""

    graph: OnnxGraph
    op: Op
    names: tuple[str, ...]

    @property
    def params(self) -> Any:
        """The op's parameters."""
        return self.op.params

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.op.results[0].shape

    @property
    def dtype(self) -> str:
        """The dtype of the first result."""
        return self.op.results[0].dtype

    def node(self, kind: str, *names: str, **attributes: Any) -> str:
        """Append a node to the graph."""
        return self.graph.node(kind, names, **attributes)


Converter = Callable[[OpCall], str | Sequence[str]]
"""Appends the nodes of an op; the names of its results."""

_CONVERTERS: dict[str, Converter] = {}


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """Register a converter for kinds of ops; a second one for a kind is an error."""

    def register(converter: Converter) -> Converter:
        for kind in kinds:
            assert kind not in _CONVERTERS, f"{kind} has two converters"
            _CONVERTERS[kind] = converter
        return converter

    return register


def find_converter(kind: str) -> Converter | None:
    """The converter of a kind of op."""
    return _CONVERTERS.get(kind)


def known_kinds() -> frozenset[str]:
    """Kinds of ops that have a converter."""
    return frozenset(_CONVERTERS)
