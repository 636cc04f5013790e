"""`evaluate`: seconds, energy, power and area of a program on a design, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.cost.figures import (
    DYNAMIC_FACTOR,
    LEAKAGE_W_PER_MM2,
    PICOJOULE,
    multiply_add_pj,
)
from meshwright.features.codesign.accelerator.cost.joules import joules_of
from meshwright.features.codesign.accelerator.design.design import (
    ITEMSIZE,
    Design,
)
from meshwright.features.codesign.accelerator.mapping.mapper import map_to, require
from meshwright.features.codesign.accelerator.mapping.product import ProductMapping
from meshwright.features.codesign.accelerator.simulate.residency import (
    LayerLoad,
    Residency,
    fuse,
)
from meshwright.features.codesign.accelerator.workload.layers import (
    Layer,
    Workload,
    workload_of,
)
from meshwright.machine import Accelerator


@dataclass(frozen=True, slots=True)
class LayerResult:
    """Seconds and joules of one execution of a layer on a design.

    bound: what takes the longest: "arrays", "vector", "dram", "global" or "launch".
    dram_bytes: that cross the chip's border, without those of values that stay on it.
    mapping: of its product; `None` if the vector units do its work.
    """

    name: str
    times: int
    seconds: float
    bound: str
    parts_s: Mapping[str, float]
    dram_bytes: float
    energies_j: Mapping[str, float]
    mapping: ProductMapping | None

    @property
    def energy_j(self) -> float:
        """Energy of one execution, without leakage."""
        return math.fsum(self.energies_j.values())


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A program on a design.

    by_op: the layers in their order.
    residency: the values that stay in the global memory.
    """

    design: Design
    workload: Workload
    by_op: tuple[LayerResult, ...]
    residency: Residency

    @property
    def seconds(self) -> float:
        """Seconds of one call."""
        return math.fsum(layer.times * layer.seconds for layer in self.by_op)

    @property
    def by_level(self) -> Mapping[str, float]:
        """Joules of one call by memory, "arrays", "vector", "overhead" and "leakage"."""
        total: dict[str, float] = {}
        for layer in self.by_op:
            for part, joules in layer.energies_j.items():
                total[part] = total.get(part, 0.0) + layer.times * joules
        on_chip = math.fsum(j for part, j in total.items() if part != "dram")
        total["overhead"] = on_chip * (DYNAMIC_FACTOR.value - 1)
        leakage_w = self.design.area_mm2 * LEAKAGE_W_PER_MM2.value
        total["leakage"] = leakage_w * self.seconds
        return total

    @property
    def energy_j(self) -> float:
        """Energy of one call."""
        return math.fsum(self.by_level.values())

    @property
    def power_w(self) -> float:
        """Mean power during a call."""
        return self.energy_j / self.seconds

    @property
    def area_mm2(self) -> float:
        """Area of the design's die."""
        return self.design.area_mm2

    @property
    def dram_bytes(self) -> float:
        """Bytes of one call that cross the chip's border."""
        return math.fsum(layer.times * layer.dram_bytes for layer in self.by_op)

    @property
    def calls_per_s_per_w(self) -> float:
        """Calls a second for each watt of the design's peak power."""
        return 1.0 / (self.seconds * self.design.tdp_w)

    @property
    def utilisation(self) -> float:
        """The share of the arrays' peak that the products reach."""
        peak = self.design.chip.flops_per_s / 2
        return self.workload.multiply_adds / (peak * self.seconds)


def evaluate(
    design: Design,
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    is_fused: bool = True,
) -> Evaluation:
    """Time, energy and power of `fn(*args)` on a design; nothing runs.

    is_fused: keep values in the global memory between layers where that saves time.
    """
    return evaluate_workload(design, workload_of(fn, args), is_fused=is_fused)


def evaluate_workload(
    design: Design, workload: Workload, *, is_fused: bool = True
) -> Evaluation:
    """Time, energy and power of a workload, in the design's number format."""
    chip = design.chip
    workload = workload.in_format(ITEMSIZE[chip.number])
    _require_room(workload, chip)
    mapped = [_mapped(layer, chip) for layer in workload.layers]
    loads = tuple(
        _load(layer, mapping, workload, chip)
        for layer, mapping in zip(workload.layers, mapped, strict=True)
    )
    room = chip.global_bytes if is_fused else 0
    residency = fuse(loads, workload.tensors, room, chip.dram_bytes_per_s)
    layers = tuple(
        _result(layer, mapping, load, residency.resident, chip)
        for layer, mapping, load in zip(workload.layers, mapped, loads, strict=True)
    )
    return Evaluation(design, workload, layers, residency)


def _require_room(workload: Workload, chip: Accelerator) -> None:
    """Fail if weights, with the other values of any one layer, exceed all memory."""
    values = [
        math.fsum(
            value.num_bytes
            for number in {*layer.reads, *layer.writes}
            for value in [workload.tensors[number]]
            if not value.is_weight
        )
        for layer in workload.layers
    ]
    needed = workload.weight_bytes + max(values, default=0.0)
    lacks = math.ceil(needed - chip.dram_bytes - chip.global_bytes)
    if lacks > 0:
        raise AcceleratorError(
            f"the design cannot hold {workload.name or 'the program'}: its main memory "
            f"lacks {lacks} bytes for the weights and the values of the largest layer"
        )


def _mapped(layer: Layer, chip: Accelerator) -> ProductMapping | None:
    """The mapping of a layer's product, unless the vector units are faster."""
    if layer.product is None:
        return None
    found = map_to(layer.product, chip)
    if layer.depthwise_flops:
        vector_s = layer.depthwise_flops / chip.vector_flops_per_s
        if not isinstance(found, ProductMapping):
            return None
        if vector_s < found.cycles / chip.clock_hz:
            return None
    return require(found, layer.name)


def _load(
    layer: Layer, mapping: ProductMapping | None, workload: Workload, chip: Accelerator
) -> LayerLoad:
    """Seconds of a layer by part, and the bytes of main memory for each of its values."""
    read, written = (
        {
            number: workload.tensors[number].num_bytes * layer.shares.get(number, 1.0)
            for number in side
        }
        for side in (layer.reads, layer.writes)
    )
    flops = layer.vector_flops
    parts = {"launch": chip.launch_s}
    held = 0.0
    if mapping is None:
        flops += layer.depthwise_flops
    else:
        parts["arrays"] = mapping.cycles / chip.clock_hz
        for number, operand in ((layer.left, "inputs"), (layer.right, "weights")):
            if number is not None and number in read:
                read[number] = max(read[number], mapping.dram_bytes[operand])
        if layer.writes:
            first = layer.writes[0]
            spilled = mapping.dram_bytes["outputs"] - _output_bytes(layer)
            written[first] += max(0.0, spilled)
        held = mapping.held_bytes
        if "global" in mapping.traffic_bytes:
            parts["global"] = mapping.traffic_bytes["global"] / chip.global_bytes_per_s
    parts["vector"] = flops / chip.vector_flops_per_s
    return LayerLoad(parts, read, written, held, layer.times)


def _output_bytes(layer: Layer) -> float:
    return 0.0 if layer.product is None else layer.product.output_bytes


def _result(
    layer: Layer,
    mapping: ProductMapping | None,
    load: LayerLoad,
    resident: frozenset[int],
    chip: Accelerator,
) -> LayerResult:
    dram_bytes = load.dram_bytes(resident)
    launch_s = load.parts_s["launch"]
    parts = {part: s for part, s in load.parts_s.items() if part != "launch"}
    parts["dram"] = dram_bytes / chip.dram_bytes_per_s
    bound = max(parts, key=lambda part: parts[part])
    longest = parts[bound]
    traffic = {} if mapping is None else dict(mapping.traffic_bytes)
    kept = load.dram_bytes(frozenset()) - dram_bytes
    traffic["dram"] = dram_bytes
    if chip.global_bytes:
        traffic["global"] = traffic.get("global", 0.0) + kept
    multiply_adds = 0 if mapping is None else _multiply_adds(layer)
    joules = joules_of(traffic, multiply_adds, chip)
    vector_flops = layer.vector_flops + (
        layer.depthwise_flops if mapping is None else 0
    )
    lane_pj = multiply_add_pj("float32", chip.node_nm)
    joules["vector"] = vector_flops / 2 * lane_pj * PICOJOULE
    return LayerResult(
        name=layer.name,
        times=layer.times,
        seconds=max(longest, launch_s),
        bound=bound if longest >= launch_s else "launch",
        parts_s=parts,
        dram_bytes=dram_bytes,
        energies_j=joules,
        mapping=mapping,
    )


def _multiply_adds(layer: Layer) -> int:
    return 0 if layer.product is None else layer.product.extents.multiply_adds
