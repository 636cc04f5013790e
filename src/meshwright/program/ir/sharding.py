"""Sharding of a value: the mesh axes that split its dims, and its partial axes."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.errors import ShardingError


@dataclass(frozen=True, slots=True)
class Sharding:
    """A value's sharding: for each dim the mesh axes that split it, major to minor.

    partial: mesh axes along which the value is partial: each device holds only an
        addend, and a collective still has to sum them. If `monoid` is not "sum", the
        devices hold terms of another associative reduction ("max", "min", "prod",
        "and", "or", "xor").
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[str, ...] = ()
    monoid: str = "sum"

    def __post_init__(self) -> None:
        used = [axis for axes in (*self.dims, self.partial) for axis in axes]
        if len(used) != len(set(used)):
            raise ShardingError(f"an axis is used twice in {self}")

    @property
    def axes(self) -> frozenset[str]:
        """All mesh axes that split a dim or along which the value is partial."""
        return frozenset(axis for axes in (*self.dims, self.partial) for axis in axes)

    @property
    def is_whole(self) -> bool:
        """Whether every device has a complete copy of the value."""
        return not self.partial and not any(self.dims)

    def dim_of(self, axis: str) -> int | None:
        """The dim that mesh axis `axis` splits; `None` if it splits no dim."""
        return next((d for d, axes in enumerate(self.dims) if axis in axes), None)

    def without_partial(self) -> Sharding:
        """This sharding without partial axes, as after an all-reduce along them."""
        return Sharding(self.dims) if self.partial else self

    def __str__(self) -> str:
        dims = ", ".join(".".join(axes) or "-" for axes in self.dims)
        name = "partial" if self.monoid == "sum" else f"partial_{self.monoid}"
        return f"[{dims}]" + (
            f" {name}({', '.join(self.partial)})" if self.partial else ""
        )


def whole(rank: int) -> Sharding:
    """The sharding of a value with `rank` dims that every device has completely."""
    return Sharding(((),) * rank)
