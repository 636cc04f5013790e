"""The table of converters, by kind of op, and the argument that a converter takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.features.deploy.onnx.graph import OnnxGraph
from meshwright.program.ir import Op


@dataclass(frozen=True, slots=True)
class OpCall:
    """The argument of a converter: an op, its operands' names, the graph to extend."""

    graph: OnnxGraph
    op: Op
    names: tuple[str, ...]

    @property
    def params(self) -> Any:
        """The op's parameters."""
        return self.op.params

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the op's first result."""
        return self.op.results[0].shape

    @property
    def dtype(self) -> str:
        """The dtype of the op's first result."""
        return self.op.results[0].dtype

    def node(self, kind: str, *names: str, **attributes: Any) -> str:
        """Append a node with one output to the graph; return the output's name."""
        return self.graph.node(kind, names, **attributes)


Converter = Callable[[OpCall], str | Sequence[str]]
"""A function that appends the nodes of an op and returns its results' names."""

CONVERTERS: dict[str, Converter] = {}
"""The converters by kind of op."""


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """A decorator that registers a converter for kinds of ops.

    A second converter for the same kind is an error.
    """

    def register(converter: Converter) -> Converter:
        for kind in kinds:
            assert kind not in CONVERTERS, f"{kind} has two converters"
            CONVERTERS[kind] = converter
        return converter

    return register
