"""The numbers of one chip: its speeds, memories, power and price, and a GPU's cores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from meshwright.errors import MachineError


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of a peak rate that an op reaches, as a function of the op's size.

    Sizes are FLOPs or bytes.

    points: (size, share) pairs, by ascending size. Between two points the share is
        interpolated over the logarithm of the size; outside of all points it is the
        share of the nearest point.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] <= 0:
            raise MachineError(f"sizes of a curve must grow, from above 0; got {sizes}")
        if not all(0 < share <= 1 for _, share in self.points):
            raise MachineError(f"shares of a curve lie in (0, 1]; got {self.points}")

    def scaled(self, factor: float) -> "Curve":
        """The curve with all shares times a factor."""
        return Curve(tuple((size, factor * share) for size, share in self.points))

    def share(self, size: float) -> float:
        """The share of the peak rate, from 0 to 1, that an op of this size reaches."""
        (first, share), *rest = self.points
        for point in rest:
            if size <= first:
                break
            if size <= point[0]:
                far = math.log(size / first) / math.log(point[0] / first)
                return share + far * (point[1] - share)
            first, share = point
        return share


_SHARE_FOR_VALUES = 0.75
"""Assumed share of on-chip memory for arrays; the rest buffers streamed tiles."""


EFFICIENCY_CLASSES = (
    "attention", "attention_gradient", "convolution", "depthwise", "memory", "product",
    "reduction", "reread", "vector",
)  # fmt: skip
"""Classes of ops that have a calibrated efficiency curve of their own.

"attention" is fused attention, and "attention_gradient" its backward pass; these two and
"convolution" reach the share of "product" where a machine does not state their own.
"depthwise" is the share of main memory's rate that a depthwise convolution reaches on a
chip of several cores, and half of that of "memory" where it is not stated.
"reduction" is the share of main memory's rate that kernels with a sum or maximum over dims
reach, and that of "memory" where it is not stated.
"reread" stands for operands that a product reads from main memory more than once.
"""

_COMPUTING = ("attention", "attention_gradient", "convolution", "product")
"""Classes whose time is that of the matrix unit, and so follows the clock."""


@dataclass(frozen=True, slots=True)
class Chip:
    """One device, as JAX counts devices: a core of TPU v2, v3 and 7x, else a chip.

    flops_per_s: peak of the matrix unit by dtype; a dtype not listed has float32's
        peak.
    vector_flops_per_s: peak of elementwise float32 operations.
    transcendental_flops: elementwise operations in the time of one exponential, logarithm
        or the like. Without a unit for them it is a polynomial and scaling.
    hbm_bytes: size of main memory.
    usable_bytes: part of main memory that a program may use.
    hbm_bytes_per_s: bandwidth of main memory.
    on_chip_bytes: size of the scratch memory (VMEM of a TPU) or of the last cache.
    placed_bytes: part of scratch memory in which the compiler places arrays; 0 if it is
        not known, and then three quarters are assumed.
    window_bytes: part of scratch memory that the compiler uses for tiles that one op
        streams from main memory; 0 if it is not known.
    receives_on_chip: 1 if collectives may write their results to scratch memory, else
        0.
    tile: rows and columns to whose multiples the two minor dims of an array are padded.
    unit: rows and columns of the tile that the matrix unit takes as its operand.
    num_cores: number of cores that compute the tiles of a product; a GPU's streaming
        multiprocessors.
    core_bytes_per_s: rate at which one core reads the last cache; 0 if it limits no
        product.
    slowest_share: share of a typical device's clock that the slowest of several devices
        has, for which they all wait.
    clock_hz: frequency of the cycles in which the compiler's cost model counts; `None`
        if not known.
    launch_s: least time of an op that is launched by itself.
    mean_w, idle_w, peak_w: power, including the chip's share of the host; mean_w is the
        mean while the chip works. `None` if the vendor publishes none.
    usd_per_hour: list price on demand; `None` if the vendor publishes none.
    efficiency: the share of the peak that ops reach, by class of op, one of
        `EFFICIENCY_CLASSES`; a class that is not listed reaches all of it.
    """

    flops_per_s: Mapping[str, float]
    vector_flops_per_s: float
    hbm_bytes: float
    usable_bytes: float
    hbm_bytes_per_s: float
    on_chip_bytes: float
    launch_s: float
    transcendental_flops: float = 16.0
    placed_bytes: float = 0.0
    window_bytes: float = 0.0
    receives_on_chip: float = 0.0
    clock_hz: float | None = None
    tile: tuple[int, int] = (1, 1)
    unit: tuple[int, int] = (1, 1)
    num_cores: int = 1
    core_bytes_per_s: float = 0.0
    slowest_share: float = 1.0
    mean_w: float | None = None
    idle_w: float | None = None
    peak_w: float | None = None
    usd_per_hour: float | None = None
    efficiency: Mapping[str, Curve] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "float32" not in self.flops_per_s:
            raise MachineError("flops_per_s lacks float32, which stands for the rest")
        rates = {f"flops_per_s.{dtype}": n for dtype, n in self.flops_per_s.items()}
        for name in (
            "vector_flops_per_s",
            "transcendental_flops",
            "hbm_bytes",
            "usable_bytes",
            "hbm_bytes_per_s",
        ):
            rates[name] = getattr(self, name)
        rates["num_cores"] = self.num_cores
        for name, rate in rates.items():
            if rate <= 0:
                raise MachineError(f"{name} is {rate:g}; wanted more than 0")
        if not 0 < self.slowest_share <= 1:
            raise MachineError(
                f"slowest_share is {self.slowest_share:g}; wanted more than 0, at most 1"
            )
        for name in ("tile", "unit"):
            if min(getattr(self, name)) < 1:
                raise MachineError(
                    f"{name} is {getattr(self, name)}; wanted rows and columns of 1 or more"
                )
        for part, whole in (
            ("usable_bytes", "hbm_bytes"),
            ("placed_bytes", "on_chip_bytes"),
            ("window_bytes", "on_chip_bytes"),
        ):
            size, most = getattr(self, part), getattr(self, whole)
            if size > most:
                raise MachineError(f"{part} {size:g} exceeds {whole} {most:g}")

    @property
    def room_bytes(self) -> float:
        """Bytes of scratch memory, or of the last cache, that can hold arrays."""
        return self.placed_bytes or _SHARE_FOR_VALUES * self.on_chip_bytes

    @property
    def lasting_bytes(self) -> float:
        """Bytes of `room_bytes` that arrays may occupy for their whole live range.

        The rest of `room_bytes` holds prefetched arrays until they are used.
        """
        return min(self.room_bytes, _SHARE_FOR_VALUES * self.on_chip_bytes)

    @property
    def half_flops_per_s(self) -> float:
        """Peak FLOP/s of the matrix unit in 16 bits; utilisation is relative to it."""
        found = (self.flops_per_s.get(dtype, 0.0) for dtype in ("bfloat16", "float16"))
        return max(found) or self.flops_per_s["float32"]

    def waiting(self) -> "Chip":
        """The chip among several of its kind, which all wait for the slowest of them."""
        if self.slowest_share == 1:
            return self
        stated = {"product": Curve(((1.0, 1.0),)), **self.efficiency}
        slowed = {
            name: curve.scaled(self.slowest_share) if name in _COMPUTING else curve
            for name, curve in stated.items()
        }
        return replace(self, efficiency=slowed, slowest_share=1.0)

    def peak_flops_per_s(self, dtype: str) -> float:
        """Peak FLOP/s of the matrix unit for matrix products of a dtype."""
        return self.flops_per_s.get(dtype, self.flops_per_s["float32"])


@dataclass(frozen=True, slots=True)
class Gpu:
    """Numbers of a GPU's streaming multiprocessors, for the model of its compiler.

    capability: CUDA's compute capability, major and minor.
    lanes: float32 units of one multiprocessor.
    shared_bytes: shared memory of one multiprocessor.
    block_shared_bytes: largest part of shared_bytes that one thread block may use.
    """

    capability: tuple[int, int]
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
