"""A CPU kernel: one dispatch of IREE whose main op is a contraction or a convolution.

This main op is called the root: its tile sizes decide how the whole dispatch is tiled.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from meshwright.errors import CompilerError
from meshwright.features.tune.iree.tiling import Tiling

_NAME = re.compile(r"%\w+(?:#\d+)?")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]+\d+)>")
_MAP = re.compile(r"affine_map<\(([^)]*)\) -> \(([^)]*)\)>")
_DIM = re.compile(r"d(\d+)")

NAMED_MAPS = {
    "linalg.matmul": ("mnk", ("mk", "kn", "mn")),
    "linalg.batch_matmul": ("bmnk", ("bmk", "bkn", "bmn")),
    "linalg.matvec": ("mk", ("mk", "k", "m")),
    "linalg.vecmat": ("nk", ("k", "kn", "n")),
    "linalg.batch_matvec": ("bmk", ("bmk", "bk", "bm")),
    "linalg.batch_vecmat": ("bnk", ("bk", "bkn", "bn")),
}
"""Loops, and the loops that index each operand and the result, of `linalg`'s named ops.

The text of these ops has no indexing maps. In "mnk" with ("mk", "kn", "mn") each letter
is a loop.
"""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the root op: its trip count, and whether it is summed over."""

    size: int
    is_reduction: bool


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or the result of the root op.

    element: element type, such as "f32".
    index: for each dim, pairs of a loop that addresses it and the loop's stride.
    """

    element: str
    shape: tuple[int, ...]
    index: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def element_bytes(self) -> float:
        return int(re.sub(r"\D", "", self.element)) / 8


@dataclass(frozen=True)
class CpuKernel:
    """A kernel as a function of its own, with the tile sizes that IREE chooses by default.

    text: `func.func` in MLIR, from tensors to tensors.
    root: text of the root op, whose tile sizes are chosen, as it stands in the dispatch.
    op: name of the root op.
    operands: operands of the root op, then its result.
    default: IREE's own tile sizes. pipeline: IREE's own code generation pipeline.
    """

    text: str
    root: str
    op: str
    loops: tuple[Loop, ...]
    operands: tuple[Operand, ...]
    default: Tiling
    pipeline: str

    def __str__(self) -> str:
        sizes = "x".join(str(loop.size) for loop in self.loops)
        return f"{self.kind} {sizes} {self.operands[0].element}{self.epilogue}"

    @property
    def kind(self) -> str:
        """`conv` if an operand is read through a window, `matmul` otherwise."""
        windows = (dim for operand in self.operands for dim in operand.index)
        return "conv" if any(len(dim) > 1 for dim in windows) else "matmul"

    @property
    def epilogue(self) -> str:
        """Ops that follow the root in the same dispatch: ` + addf, maximumf`."""
        _, _, after = self.text.partition(self.root)
        names = re.findall(r"= (?:arith|math)\.(\w+)", after)
        return f" + {', '.join(names)}" if names else ""

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the kernel that does not depend on names of values."""
        return hashlib.sha256(_renamed(self.text).encode()).hexdigest()[:16]

    @property
    def arguments(self) -> list[tuple[str, tuple[int, ...]]]:
        """Element type and shape of each argument of the function."""
        head = self.text.partition(" -> (")[0]
        return [(m[2], _shape(m[1])) for m in _TENSOR.finditer(head)]

    @property
    def root_arguments(self) -> list[tuple[str, str]]:
        """Name and type of each operand of the root op, the result's initial value last."""
        ins, _, rest = self.root.partition(" ins(")[2].partition(") outs(")
        pairs: list[tuple[str, str]] = []
        for part in (ins, rest.partition(")")[0]):
            names, _, types = part.partition(" : ")
            pairs += zip(names.split(", "), types.split(", "), strict=True)
        return pairs


def parse_kernel(text: str, root: str, default: Tiling, pipeline: str) -> CpuKernel:
    """The kernel of an MLIR function and its root op.

    Raises `CompilerError` unless the root has two operands and simple indexing maps.
    """
    op = root.partition("= ")[2].split()[0]
    tensors = [(m[2], _shape(m[1])) for m in _TENSOR.finditer(_types(root))]
    if len(tensors) != 3:
        raise CompilerError(
            f"{op} has {len(tensors) - 1} operands of known shape, not 2"
        )
    maps = _maps(op, root)
    operands = tuple(
        Operand(element, shape, index)
        for (element, shape), index in zip(tensors, maps, strict=True)
    )
    count = 1 + max(loop for each in operands for dim in each.index for loop, _ in dim)
    result_loops = {loop for dim in operands[-1].index for loop, _ in dim}
    sizes = {
        dim[0][0]: size
        for each in operands
        for dim, size in zip(each.index, each.shape, strict=True)
        if len(dim) == 1 and dim[0][1] == 1
    }
    if set(sizes) != set(range(count)):
        raise CompilerError(f"{op} has a loop whose trip count no operand shows")
    loops = tuple(Loop(sizes[i], i not in result_loops) for i in range(count))
    return CpuKernel(text, root, op, loops, operands, default, pipeline)


def _types(root: str) -> str:
    """The text that lists the types of a root op's operands and result."""
    ins, _, rest = root.partition(" ins(")[2].partition(") outs(")
    return ins + rest.partition(")")[0]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x") if size)


def _maps(op: str, root: str) -> list[tuple[tuple[tuple[int, int], ...], ...]]:
    """The (loop, stride) pairs that index each dim of each operand of the root op."""
    maps = list(_MAP.finditer(root.partition(" ins(")[0]))
    if not maps and op in NAMED_MAPS:
        loops, indices = NAMED_MAPS[op]
        return [tuple(((loops.index(c), 1),) for c in index) for index in indices]
    if len(maps) != 3:
        raise CompilerError(f"{op} has no indexing maps that are known here")
    return [
        tuple(_terms(each) for each in match[2].split(",") if each.strip())
        for match in maps
    ]


def _terms(expression: str) -> tuple[tuple[int, int], ...]:
    """(loop, stride) pairs of an affine expression such as `d1 * 2 + d4`."""
    terms: list[tuple[int, int]] = []
    for term in expression.split("+"):
        loop, _, stride = term.strip().partition(" * ")
        match = _DIM.fullmatch(loop)
        if not match or (stride and not stride.isdigit()):
            raise CompilerError(f"an operand is addressed by {expression.strip()!r}")
        terms.append((int(match[1]), int(stride or 1)))
    return tuple(terms)


def _renamed(text: str) -> str:
    numbers: dict[str, str] = {}
    return _NAME.sub(lambda m: numbers.setdefault(m[0], f"%{len(numbers)}"), text)
