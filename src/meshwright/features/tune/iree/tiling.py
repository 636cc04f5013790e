"""Tile sizes of a kernel, as IREE's CPU backend writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import CompilerError

_LEVELS = ("distribution", "vector_common_parallel", "vector_reduction")
_LIST = re.compile(r"(\w+) = \[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tile sizes of a kernel: in each level one number per loop; 0 means not tiled.

    distribution: size of a workgroup, the part of the result that one call computes.
    parallel: size of the vectors of the result.
    reduction: tile sizes of the loops that are summed over.
    """

    distribution: tuple[int, ...]
    parallel: tuple[int, ...]
    reduction: tuple[int, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.distribution), len(self.parallel), len(self.reduction)}
        sizes = (*self.distribution, *self.parallel, *self.reduction)
        if len(lengths) != 1 or min(sizes, default=0) < 0:
            raise CompilerError(
                f"tile sizes {self}: wanted one number from 0 per loop in each level"
            )

    def __str__(self) -> str:
        """The levels as IREE writes them; `parse` reads them back."""
        levels = (self.distribution, self.parallel, self.reduction)
        return ", ".join(
            f"{name} = [{', '.join(map(str, sizes))}]"
            for name, sizes in zip(_LEVELS, levels, strict=True)
        )

    @property
    def attribute(self) -> str:
        """The MLIR attribute with these tile sizes: IREE's lowering config."""
        return f"#iree_cpu.lowering_config<{self}>"

    @classmethod
    def parse(cls, text: str) -> Tiling:
        """Read tile sizes from the text of IREE's lowering config.

        A level (such as `distribution`) that the text lacks tiles nothing.
        """
        levels: Mapping[str, tuple[int, ...]] = {
            match[1]: tuple(int(size) for size in match[2].split(",") if size.strip())
            for match in _LIST.finditer(text)
            if match[1] in _LEVELS
        }
        if not levels:
            raise CompilerError(
                f"{text[:80]!r} has no tile sizes of IREE's CPU backend"
            )
        none = (0,) * len(next(iter(levels.values())))
        return cls(*(levels.get(name, none) for name in _LEVELS))
