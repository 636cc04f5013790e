"""The cost gate of product loops: whether a loop is faster than collective and product.

Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large
Deep Learning Models", ASPLOS 2023; XLA: `dot_handler.cc`. With C the seconds of the
product, M those of the collective, m how many times longer the permutes take, and n
devices, the first or the last permute is exposed, x = 2 M m / n. The loop is skipped if
M is negligible, or if max(C, M m) + x >= C + M. Here C on the left side also has what the
loop adds: parts that read an operand again, copies of parts into the result, and a pass
over the result for the elementwise ops that a whole product computes with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.machine import Mesh
from meshwright.machine.placement import Placement
from meshwright.partitioner.lower import ProductLoop
from meshwright.partitioner.lower.overlap import loop_ops
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.predict.roofline.kernel_time import KernelTraffic, kernel_time
from meshwright.predict.simulate.timeline import Setting
from meshwright.program.ir import Op, num_bytes
from meshwright.program.ops import work_of

NEGLIGIBLE_S = 1e-8
"""Seconds of a collective that is not worth a loop: XLA's 1e-5 ms."""

_FREE = frozenset({"all_slice", "axis_index", "permute", "transpose"})
"""Ops that are no kernels: permutes, and what a product computes on the fly."""


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """Seconds of a product loop, and of the collective and product that it replaces.

    product_s, collective_s: seconds without a loop.
    parts_s: seconds of all kernels of the loop.
    permutes_s: seconds of its permutes, in the direction that takes longer.
    num_devices: number of devices on the ring.
    """

    product_s: float
    collective_s: float
    parts_s: float
    permutes_s: float
    num_devices: int

    @property
    def loop_s(self) -> float:
        """Seconds of the loop: the longer of kernels and permutes, and one permute more."""
        exposed_s = 2 * self.permutes_s / self.num_devices
        return max(self.parts_s, self.permutes_s) + exposed_s

    @property
    def is_worthwhile(self) -> bool:
        """Whether the loop is faster, and the collective not negligible."""
        before_s = self.product_s + self.collective_s
        return self.collective_s > NEGLIGIBLE_S and self.loop_s < before_s

    def __str__(self) -> str:
        before_s = self.product_s + self.collective_s
        return (
            f"the product and its collective take {1e3 * before_s:.3g} ms one after the "
            f"other, and {1e3 * self.loop_s:.3g} ms as a loop"
        )


def loop_times(loop: ProductLoop, mesh: Mesh, setting: Setting) -> LoopTimes:
    """The times of one product loop on a placed mesh."""
    collective, placement = loop.collective, setting.placement
    axes = collective.params["axes"]
    assert isinstance(axes, tuple)
    size = max(num_bytes(collective.operands[0]), num_bytes(collective.results[0]))
    ops = loop_ops(loop, mesh)
    links_s: dict[str, float] = {}
    for op in ops:
        if op.kind == "permute":
            seconds = COLLECTIVE_S[op.kind](
                num_bytes(op.results[0]), placement.of(axes)
            )
            for stream in setting.links_of(op):
                links_s[stream] = links_s.get(stream, 0.0) + seconds
    return LoopTimes(
        _kernels_s(loop.products, placement),
        COLLECTIVE_S[collective.kind](size, placement.of(axes)),
        _kernels_s(ops, placement) + _epilogues_s(loop, placement),
        max(links_s.values(), default=0.0),
        mesh.size(axes),
    )


def _kernels_s(ops: Sequence[Op], placement: Placement) -> float:
    """Seconds of the kernels of some ops.

    An addition is fused into its product. So is writing a product into an array, as the
    TPU compiler does; where another compiler copies it, the simulated step has the copy.
    """
    chip = placement.machine.chip
    products = {r for op in ops if op.kind == "dot_general" for r in op.results}
    return sum(
        kernel_time(op, work_of(op), KernelTraffic(_bytes(op)), chip).seconds
        for op in ops
        if op.kind not in _FREE
        and op.results[0].shape
        and not (op.kind == "dynamic_update_slice" and op.operands[1] in products)
    )


def _epilogues_s(loop: ProductLoop, placement: Placement) -> float:
    """Seconds of elementwise ops on results that are put together from parts."""
    if loop.collective.kind != "all_gather":
        return 0.0
    num = sum(2 * num_bytes(op.results[0]) for op in loop.products)
    return num / placement.machine.chip.hbm_bytes_per_s


def _bytes(op: Op) -> int:
    """Bytes that an op moves to and from main memory."""
    result = num_bytes(op.results[0])
    if op.kind == "add":
        return result  # the other addend; product and sum are counted there
    if op.kind == "dynamic_update_slice":
        return 2 * num_bytes(op.operands[1])
    if op.kind == "broadcast_in_dim":
        return result
    return result + sum(map(num_bytes, op.operands))
