"""The mesh: named axes over devices, and its text form."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meshwright.errors import MeshError


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Named axes and their sizes, as in JAX; the first varies slowest over devices.

    `Mesh({"data": 8, "model": 4})` needs no devices; they are chosen when a step runs.
    `Mesh({"data": 8}, sequential={"micro": 4})` has 8 devices; tactics shard along
    "micro" as along any other axis, but its 4 parts run one after another on the same
    devices.

    axes: the names, major to minor, those of sequential axes last.
    devices: the devices to use, as a flat tuple in the mesh's order; `None` for the
        first devices of the process.
    sequential: the names of sequential axes (loops in time), at most one.
    """

    sizes: tuple[tuple[str, int], ...]
    sequential: tuple[str, ...]
    devices: tuple[object, ...] | None = field(compare=False)
    axes: tuple[str, ...] = field(compare=False)
    _size: Mapping[str, int] = field(compare=False, repr=False)

    def __init__(
        self,
        axes: Mapping[str, int],
        devices: Iterable[object] | None = None,
        *,
        sequential: Mapping[str, int] | None = None,
    ) -> None:
        in_time = {} if sequential is None else sequential
        for given in (axes, in_time):
            if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise MeshError(
                    f"axes are {given!r:.60}; wanted their sizes by name, such as "
                    "{'data': 8}"
                )
        sizes = tuple(
            (str(name), size) for each in (axes, in_time) for name, size in each.items()
        )
        _require_one_sequential(axes, in_time)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "sequential", tuple(map(str, in_time)))
        if devices is not None and not isinstance(devices, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(
                f"devices are {devices!r:.60}; wanted a list of jax.devices()"
            )
        chosen = None if devices is None else tuple(devices)
        object.__setattr__(self, "devices", chosen)
        object.__setattr__(self, "axes", tuple(name for name, _ in sizes))
        object.__setattr__(self, "_size", dict(sizes))
        if not sizes:
            raise MeshError("a mesh needs at least one axis, such as {'data': 8}")
        for name, size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise MeshError(f"axis {name!r} has size {size!r}; wanted an int >= 1")
            if not name or any(c in name for c in " .,="):
                raise MeshError(f"axis name {name!r} is empty or holds one of ' .,='")
        if chosen is not None:
            self._require_devices(chosen)

    def _require_devices(self, chosen: tuple[object, ...]) -> None:
        """Raise `MeshError` unless devices are distinct and fill the mesh."""
        if len(chosen) != self.num_devices:
            raise MeshError(
                f"{len(chosen)} devices do not fill mesh {self} of {self.num_devices}"
            )
        for device in chosen:
            if not hasattr(device, "platform"):
                raise MeshError(
                    f"{device!r:.60} is no device; wanted devices of jax.devices(), in one "
                    "list in the mesh's order, or none for the first ones"
                )
        if len(set(chosen)) < len(chosen):
            twice = next(device for device in chosen if chosen.count(device) > 1)
            raise MeshError(
                f"{twice} stands in mesh {self} more than once; name it once"
            )

    @property
    def shape(self) -> dict[str, int]:
        """Size of each axis, by its name."""
        return dict(self.sizes)

    @property
    def num_devices(self) -> int:
        """Number of devices: the product of all axis sizes but the sequential one."""
        return math.prod(
            size for name, size in self.sizes if name not in self.sequential
        )

    @property
    def spatial(self) -> "Mesh":
        """The mesh of the devices, without the sequential axis."""
        if not self.sequential:
            return self
        sizes = {n: size for n, size in self.sizes if n not in self.sequential}
        return Mesh(sizes, self.devices)

    def size(self, axes: str | Iterable[str]) -> int:
        """Number of devices along one axis, or along several together.

        For a sequential axis, the number of its parts in time.
        """
        if isinstance(axes, str):
            axes = (axes,)
        product = 1
        for axis in axes:
            product *= self._size.get(axis) or self._size[self.require(axis)]
        return product

    def require(self, axis: str) -> str:
        """The given axis; raises `MeshError` with the known axes if it is not one."""
        self.require_all((axis,))
        return axis

    def require_all(self, axes: Iterable[str]) -> None:
        """Raise `MeshError`, with missing and needed axes, if the mesh lacks any."""
        named = tuple(axes)
        known = ", ".join(f"{name}={size}" for name, size in self.sizes)
        for axis in named:
            if not isinstance(axis, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise MeshError(
                    f"axis {axis!r:.60} is no name; wanted the name of one axis of the "
                    f"mesh, which has {known}; for several, give a tactic for each"
                )
        needed = tuple(dict.fromkeys(named))
        missing = [repr(axis) for axis in needed if axis not in self.axes]
        if not missing:
            return
        are = "axis {} is" if len(missing) == 1 else "axes {} are"
        told = f"{are.format(' and '.join(missing))} not in the mesh, which has {known}"
        more = f"; needed are {', '.join(needed)}" if len(needed) > 1 else ""
        raise MeshError(told + more)

    def over(self, devices: Iterable[object]) -> "Mesh":
        """A mesh with the same axes over other devices."""
        in_time = {axis: self.size(axis) for axis in self.sequential}
        return Mesh(self.spatial.shape, devices, sequential=in_time)

    def require_spatial(self, what: str) -> None:
        """Raise `MeshError`, with the reason `what`, if there is a sequential axis."""
        for axis in self.sequential:
            raise MeshError(
                f"mesh {self} has the sequential axis {axis!r}; {what}: leave it out"
            )

    def __str__(self) -> str:
        return ",".join(
            f"{_IN_TIME if name in self.sequential else ''}{name}={size}"
            for name, size in self.sizes
        )


def _require_one_sequential(
    axes: Mapping[str, int], sequential: Mapping[str, int]
) -> None:
    """Raise `MeshError` for two sequential axes, or one that is in `axes` too."""
    if len(sequential) > 1:
        raise MeshError(
            f"sequential axes {', '.join(map(str, sequential))}; wanted at most one, such "
            "as {'micro': 4}"
        )
    for name in sequential:
        if name in axes:
            raise MeshError(f"axis {name!r} is both one of devices and sequential")


_IN_TIME = "time:"
"""Prefix of the name of a sequential axis in the text form of a mesh."""


def parse_mesh(text: str) -> Mesh:
    """The mesh of a text such as `batch=8,model=4`; the inverse of `str(mesh)`.

    A sequential axis follows `time:`, as in `batch=8,time:micro=4`.
    """
    axes: dict[str, int] = {}
    sequential: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.partition("=")
        is_sequential = name.strip().startswith(_IN_TIME)
        name = name.strip().removeprefix(_IN_TIME)
        if not equals or not size.strip().isdigit():
            raise MeshError(
                f"cannot read {part!r} in mesh {text!r}; wanted name=size,..."
            )
        if name in axes or name in sequential:
            raise MeshError(f"axis {name!r} stands twice in mesh {text!r}")
        (sequential if is_sequential else axes)[name] = int(size)
    return Mesh(axes, sequential=sequential)
