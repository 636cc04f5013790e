"""Agreement between the processes of `jax.distributed`, without any device.

Every process puts a value into the key-value store of JAX's coordination service and reads
the values of all others.
"""

import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from meshwright.errors import CheckpointError
from meshwright.jax_private import process_group

_POLL_S = 0.02
"""Seconds between two looks into the store; Ctrl-C takes effect in between."""

_WAIT_S = 600.0
"""Seconds to wait for the other processes: longer than one reads its part of a state."""


class _Store(Protocol):
    def key_value_set_bytes(self, key: str, value: bytes) -> None: ...
    def key_value_dir_get_bytes(self, prefix: str) -> list[tuple[str, bytes]]: ...


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The processes that use one directory together; one process if `store` is `None`.

    name: text that is equal in all processes, and different for each group.
    store: key-value store of JAX's coordination service.
    index, count: number of this process, and number of processes.
    """

    name: str
    store: _Store | None
    index: int
    count: int
    _calls: Any = field(default_factory=itertools.count)

    @property
    def is_first(self) -> bool:
        """Whether this is process 0, which locks, deletes and decides for all."""
        return self.index == 0

    def gather(self, value: Any) -> list[Any]:
        """The JSON values of all processes, in the order of the processes.

        Every process must call this. Raises `CheckpointError` if one has not within 10
        minutes.
        """
        if self.store is None:
            return [value]
        key = f"meshwright/checkpoint/{self.name}/{next(self._calls)}/"
        self.store.key_value_set_bytes(
            f"{key}{self.index:08d}", json.dumps(value).encode()
        )
        ends = time.monotonic() + _WAIT_S
        while len(found := self.store.key_value_dir_get_bytes(key)) < self.count:
            if time.monotonic() >= ends:
                raise CheckpointError(
                    f"process {self.index} has waited {_WAIT_S:.0f} s for the other "
                    f"{self.count - 1}; save and restore in every process, in one order"
                )
            time.sleep(_POLL_S)
        return [json.loads(text) for _, text in sorted(found)]

    def from_first(self, value: Any) -> Any:
        """The JSON value that process 0 gives; every process must call this."""
        return self.gather(value)[0]


_groups = itertools.count()
"""Counts groups, for their names; equal in all processes, which run one program."""


def make_group() -> ProcessGroup:
    """The group of all processes of `jax.distributed`, or of this process alone."""
    name = str(next(_groups))
    group = process_group()
    if group is None:
        return ProcessGroup(name, None, 0, 1)
    return ProcessGroup(name, *group)
