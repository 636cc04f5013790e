"""Storage formats of sparse matrices, and the two forms in which MLIR code holds them.

A format is a list of levels, about one per dim. A dense level stores all positions. A
compressed level stores the positions of elements that are there, and where each row of
them begins. (MLIR, dialect `sparse_tensor`; F. Kjolstad et al., "The Tensor Algebra
Compiler", OOPSLA 2017.) Compiled code knows compressed rows, and rows of blocks. A CSC
matrix is held as the rows of its transpose, and COO gets the starts of its rows when it
is packed (`storage.py`), so that no code is written for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import SparseError, did_you_mean

INDEX = "int32"
"""The dtype of the arrays of positions and coordinates."""

_NAMES = ("dense", "csr", "csc", "coo", "bsr")


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format of sparse matrices.

    name: "csr", "csc", "coo" or "bsr". block: rows and columns of the blocks of "bsr".
    """

    name: str
    block: tuple[int, int] = (1, 1)

    @property
    def held(self) -> Format:
        """The format in which compiled code holds the matrix: "csr" or "bsr"."""
        return self if self.name == "bsr" else Format("csr")

    @property
    def order(self) -> tuple[int, int]:
        """The dim of the tensor that holds it, for each dim of the matrix."""
        return (1, 0) if self.name == "csc" else (0, 1)

    @property
    def encoding(self) -> str:
        """The MLIR attribute of tensors that hold matrices in this format."""
        rows, columns = self.block
        levels = (
            f"i floordiv {rows} : dense, j floordiv {columns} : compressed, "
            f"i mod {rows} : dense, j mod {columns} : dense"
            if self.name == "bsr"
            else "i : dense, j : compressed"
        )
        fields = f"map = (i, j) -> ({levels}), posWidth = 32, crdWidth = 32"
        return f"#sparse_tensor.encoding<{{ {fields} }}>"

    def why_not(self, shape: Sequence[int]) -> str | None:
        """Why an array of this shape cannot have the format; `None` if it can."""
        if len(shape) != 2:
            return f"{self} is for matrices, and the array has shape {tuple(shape)}"
        sizes = zip(shape, self.block, strict=True)
        if any(extent % size for extent, size in sizes):
            return f"blocks of {self.block} do not divide the shape {tuple(shape)}"
        return None

    def __str__(self) -> str:
        rows, columns = self.block
        return f"bsr:{rows}x{columns}" if self.name == "bsr" else self.name


def parse_format(text: str) -> Format | None:
    """The format that a text names: `csr`, `csc`, `coo`, `bsr:4x4` or `dense`.

    >>> str(parse_format("bsr:8")), parse_format("dense")
    ('bsr:8x8', None)
    """
    name, _, block = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in _NAMES or (block and name != "bsr"):
        raise SparseError(
            f"format {text!r} is unknown; wanted one of {', '.join(_NAMES)}, with the size "
            f"of blocks for bsr, as in 'bsr:4x4'{did_you_mean(text, _NAMES)}"
        )
    if name == "dense":
        return None
    if name != "bsr":
        return Format(name)
    sizes = (block or "4").split("x")
    if len(sizes) > 2 or not all(s.isdigit() and int(s) for s in sizes):
        raise SparseError(
            f"blocks of {text!r} have no size; wanted 'bsr:4x4' or 'bsr:4'"
        )
    return Format(name, (int(sizes[0]), int(sizes[-1])))
