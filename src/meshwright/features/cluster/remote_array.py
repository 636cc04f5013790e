"""Handles in a client to arrays on workers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np

from meshwright.errors import ClusterError
from meshwright.features.cluster.session import ClientSession
from meshwright.features.cluster.wire.messages import HostArray
from meshwright.features.cluster.worker.boxes import fill, whole_box
from meshwright.jax_private import is_key


class RemoteArray:
    """A handle to an array on the workers of a slice, which may not be computed yet.

    It has `shape` and `dtype`, so that it is an argument of a step like any array. When the
    last reference to it is dropped, its memory on the workers is freed.

    devices: the devices that hold it; `None` while no program has read it.
    copies: copies on other slices, by their devices. They live as long as this handle.
    """

    def __init__(
        self,
        session: ClientSession,
        number: int,
        aval: Any,
        devices: tuple[int, ...] | None = None,
    ) -> None:
        self.shape: tuple[int, ...] = tuple(aval.shape)
        self.dtype = aval.dtype
        self.weak_type: bool = getattr(aval, "weak_type", False)
        self.number = number
        self.session = session
        self.devices = devices
        self.copies: dict[tuple[int, ...], RemoteArray] = {}
        self._is_donated = False
        weakref.finalize(self, session.drop, number).atexit = False

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def result(self) -> Any:
        """The whole array in this process, once it is computed: NumPy, or PRNG keys.

        Raises `ClusterError` if it cannot be computed, was donated, or was lost.
        """
        self.require_kept()
        (parts,) = self.session.fetch_all([self.number]).result()
        return self.assemble(parts)

    def block_until_ready(self) -> Self:
        """Wait until the array is computed, and return this handle; no data is fetched.

        An error of the program is raised where the data is read.
        """
        self.require_kept()
        self.session.wait(self.number)
        return self

    def assemble(self, parts: Sequence[Any]) -> Any:
        """The whole array, from the parts of all workers, as they send them."""
        loaded = [self.session.connection.load(each) for each in parts]
        boxes = [box for each in loaded for box in each]
        whole: Any = fill(whole_box(self.shape), boxes, self.dtype)
        if (
            len(boxes) == 1
        ):  # the memory of a worker, or of Ray, which cannot be written
            whole = np.array(whole)
        key_type = next((box.key_type for box in boxes), "")
        return jax.random.wrap_key_data(whole, impl=key_type) if key_type else whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.result(), dtype)

    def __float__(self) -> float:
        return float(self.result())

    def __int__(self) -> int:
        return int(self.result())

    def __bool__(self) -> bool:
        return bool(self.result())

    def __format__(self, spec: str) -> str:
        return format(self.result(), spec) if spec else repr(self)

    def __reduce__(self) -> Any:
        raise ClusterError(
            f"{self} belongs to this process's session, and cannot be copied or pickled: "
            "fetch it with .result(), or a whole tree with part.fetch"
        )

    def require_kept(self) -> None:
        """Raise `ClusterError` if the array was donated to a call."""
        if self._is_donated:
            raise ClusterError(
                f"array {self.number} was donated to a call; go on with its results"
            )

    def donate(self) -> None:
        """Record that the array is donated to a call, and drop all its copies."""
        self._is_donated = True
        self.copies.clear()
        self.session.drop(self.number)

    def __repr__(self) -> str:
        state = ", donated" if self._is_donated else ""
        return f"RemoteArray({self.dtype}{list(self.shape)}{state})"


def host_array(leaf: Any, *, copy: bool) -> tuple[HostArray, Any]:
    """An array in this process's memory, with its shape and dtype.

    copy: whether the memory must be another than that of `leaf`, if a caller can write
        there. A caller cannot write to the memory of a JAX array.
    Raises `ClusterError` if `leaf` is not an array.
    """
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        data = np.asarray(jax.random.key_data(leaf))
        value = HostArray(data, str(jax.random.key_impl(leaf)))
        return value, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    try:
        aval: Any = jax.api_util.shaped_abstractify(leaf)
        copies = copy and not isinstance(leaf, jax.Array)
        return HostArray(np.array(leaf, aval.dtype, copy=copies or None)), aval
    except TypeError:
        raise ClusterError(
            f"{leaf!r:.60} is a {type(leaf).__name__}; wanted an array of numbers or a "
            "number, which workers can keep"
        ) from None
