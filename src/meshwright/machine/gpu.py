"""Numbers of a GPU that its compiler needs and that other chips do not have."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.errors import MachineError


@dataclass(frozen=True, slots=True)
class Gpu:
    """The streaming multiprocessors of a GPU; the compiler sizes its kernels by them.

    capability: CUDA's compute capability, major and minor.
    num_cores: number of multiprocessors. lanes: float32 units of one multiprocessor.
    shared_bytes: shared memory of one multiprocessor. block_shared_bytes: the most of it
        that one thread block may use.
    """

    capability: tuple[int, int]
    num_cores: int
    lanes: int
    shared_bytes: int
    block_shared_bytes: int

    def __post_init__(self) -> None:
        if len(self.capability) != 2:
            raise MachineError(
                f"capability is {self.capability}; wanted major and minor"
            )
        if self.block_shared_bytes > self.shared_bytes:
            raise MachineError(
                f"block_shared_bytes {self.block_shared_bytes} exceeds shared_bytes "
                f"{self.shared_bytes}"
            )
