"""An ONNX graph while it is built: its nodes, constants and names of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.features.deploy.source.inexpressible import Inexpressible
from meshwright.program.ir import Atom, Literal

OPSET = 20
"""Version of ONNX's operators: ONNX Runtime 1.17 and later has it, also in browsers.

At version 21, ONNX Runtime 1.32 cannot load int8 models in which a reshape follows a
product: it moves the quantization past the reshape, with another type for its zero point.
"""

_TYPES = {
    "bool": "BOOL", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT",
    "float64": "DOUBLE", "int8": "INT8", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32",
    "uint64": "UINT64",
}  # fmt: skip


def onnx_type(dtype: str) -> int:
    """ONNX's number of a dtype; `Inexpressible` if ONNX lacks it, as complex64."""
    if dtype not in _TYPES:
        raise Inexpressible(f"there is no type {dtype}")
    return int(getattr(import_module("onnx").TensorProto, _TYPES[dtype]))


@dataclass
class OnnxGraph:
    """An ONNX graph while it is built; each body of a loop has a graph of its own.

    names: by value, its name. constants: arrays by name, shared by all bodies.
    outer: for a body, the graph around it, whose values the body may read.
    count: the number of names made so far, shared by all bodies.
    known: names of small constants by dtype, shape and content.
    reshaped: by name of a reshaped value in this graph, the name before.
    turned: by name of a transposed value in this graph, the name before and the order.
    shapes: by name, shared by all bodies, as far as converters know them.
    """

    outer: OnnxGraph | None = None
    nodes: list[Any] = field(default_factory=list)
    names: dict[Atom, str] = field(default_factory=dict)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    count: list[int] = field(default_factory=lambda: [0])
    known: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    reshaped: dict[str, str] = field(default_factory=dict)
    turned: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def body(self) -> OnnxGraph:
        """An empty graph for the body of a loop or branch in this graph."""
        shared = self.constants, self.count, self.known
        return OnnxGraph(self, [], {}, *shared, shapes=self.shapes)

    def fresh(self, hint: str = "v") -> str:
        """A new name that no other value has."""
        self.count[0] += 1
        return f"{hint}_{self.count[0]}"

    def node(self, kind: str, inputs: Sequence[str], /, **attributes: Any) -> str:
        """Append a node with one output, and return the output's name."""
        return self.nodes_of(kind, inputs, 1, **attributes)[0]

    def nodes_of(
        self, kind: str, inputs: Sequence[str], count: int, /, **attributes: Any
    ) -> list[str]:
        """Append a node with `count` outputs, and return the outputs' names."""
        names = [self.fresh(kind.lower()) for _ in range(count)]
        make = import_module("onnx").helper.make_node
        self.nodes.append(make(kind, list(inputs), names, names[0], **attributes))
        return names

    def constant(self, array: Any, dtype: str = "int64") -> str:
        """The name of a constant, which is added to the graph.

        Equal constants of at most 64 elements are stored once.
        """
        plain = np.asarray(array)
        if str(plain.dtype) != dtype:
            plain = plain.astype(_numpy_type(dtype))
        onnx_type(dtype)
        if plain.size > 64:
            name = self.fresh("constant")
            self.constants[name] = plain
            return name
        key = (dtype, plain.shape, plain.tobytes())
        if key not in self.known:
            self.known[key] = self.fresh("constant")
            self.constants[self.known[key]] = plain
        return self.known[key]

    def read(self, atom: Atom) -> str:
        """The name of a literal, or of a value in this graph or one around it."""
        if isinstance(atom, Literal):
            return self.constant(atom.value, atom.dtype)
        graph: OnnxGraph | None = self
        while graph is not None:
            if atom in graph.names:
                return graph.names[atom]
            graph = graph.outer
        raise AssertionError(f"no op before computes {atom}")

    def drop_unread(self, outputs: Sequence[str]) -> None:
        """Remove the nodes whose results neither a node nor an output reads."""
        read, kept = set(outputs), list[Any]()
        for node in reversed(self.nodes):
            if read.isdisjoint(node.output):
                continue
            kept.append(node)
            read.update(names_of(node))
        self.nodes = kept[::-1]

    # -- nodes that most converters need ---------------------------------------------

    def fold(
        self, name: str, compute: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> str | None:
        """The name of `compute(constant)`; `None` if `name` is not a constant."""
        if name not in self.constants:
            return None
        made = np.ascontiguousarray(compute(self.constants[name]))
        return self.constant(made, str(made.dtype))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The name of the value in another shape, in row-major order."""
        folded = self.fold(name, lambda x: x.reshape(tuple(shape)))
        if folded is not None:
            return folded
        # 0 means "as before" without allowzero, and a size of 0 here.
        extra = {"allowzero": 1} if 0 in shape else {}
        given = self.reshaped.get(name, name)
        if self.shapes.get(given) == tuple(shape):
            return given
        made = self.node("Reshape", [given, self.constant(list(shape))], **extra)
        self.reshaped[made], self.shapes[made] = given, tuple(shape)
        return made

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """The name of a value with the dims in another order."""
        if name in self.turned:
            name, before = self.turned[name]
            order = [before[d] for d in order]
        if list(order) == sorted(order):
            return name
        folded = self.fold(name, lambda x: x.transpose(tuple(order)))
        if folded is not None:
            return folded
        shape = self.shapes.get(name, ())
        moved = [d for d in order if not shape or shape[d] != 1]
        made = [shape[d] for d in order] if shape else []
        if moved == sorted(moved):
            return self.reshape(name, made)
        if name not in self.reshaped or len(moved) == len(order):
            turned = self.node("Transpose", [name], perm=list(order))
            self.turned[turned] = name, list(order)
            return turned
        kept = sorted(moved)
        name = self.reshape(name, [shape[d] for d in kept])
        name = self.node("Transpose", [name], perm=[kept.index(d) for d in moved])
        self.shapes[name] = tuple(shape[d] for d in moved)
        return self.reshape(name, made)

    def cast(self, name: str, dtype: str) -> str:
        """The name of the value converted to another dtype."""
        return self.node("Cast", [name], to=onnx_type(dtype))

    def slice(
        self,
        name: str,
        starts: Sequence[int],
        ends: Sequence[int],
        steps: Sequence[int],
    ) -> str:
        """The name of a slice; starts, ends and steps are given for every dim."""
        axes = self.constant(list(range(len(starts))))
        rest = [self.constant(list(each)) for each in (starts, ends)]
        return self.node("Slice", [name, *rest, axes, self.constant(list(steps))])

    def expand(self, name: str, shape: Sequence[int]) -> str:
        """The name of the value with its dims of size 1 repeated up to `shape`."""
        return self.node("Expand", [name, self.constant(list(shape))])


def names_of(node: Any) -> Iterator[str]:
    """Names that a node reads, also in bodies of loops and branches."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from names_of(inner)
        yield from (value.name for value in attribute.g.output)


def _numpy_type(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(dtype)


def value_info(name: str, shape: Sequence[int], dtype: str) -> Any:
    """ONNX's record of the name, shape and dtype of an input or output."""
    helper = import_module("onnx").helper
    return helper.make_tensor_value_info(name, onnx_type(dtype), list(shape))
