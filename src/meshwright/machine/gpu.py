"""What a GPU's compiler asks of a chip beyond what every chip has."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.errors import MachineError


@dataclass(frozen=True, slots=True)
class Gpu:
    """The multiprocessors of a GPU; a compiler sizes its kernels by them.

    capability: CUDA's compute capability, major and minor.
    num_cores: streaming multiprocessors. lanes: float32 units of one.
    shared_bytes: shared memory of one; block_shared_bytes: what one block may have.
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
