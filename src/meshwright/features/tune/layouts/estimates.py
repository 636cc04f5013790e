"""The compiler's estimates of kernels in scheduled HLO, and the work that has none."""

from dataclasses import dataclass

from meshwright.run.compilers.hlo import (
    Module,
    array_sizes,
    calls_of,
    cycles_of,
    parse_hlo,
)

_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call")
    + ("conditional", "after-all", "partition-id", "replica-id", "iota", "domain")
    + ("opt-barrier", "add-dependency", "get-dimension-size")
)
"""Opcodes that move no data themselves."""


@dataclass(frozen=True, slots=True)
class Unestimated:
    """Work in one execution for which the compiler estimates no cycles.

    async_copies: number of asynchronous copies, slices and collectives, with the trip
        counts of loops around them.
    num_bytes: bytes that all such instructions write, custom calls included.
    """

    async_copies: int
    num_bytes: int


def unestimated(text: str) -> Unestimated:
    """The work in scheduled HLO that `estimated_cycles` does not count."""
    module = parse_hlo(text)
    copies = total = 0
    for name, runs in control_runs(module).items():
        for each in module.computations[name]:
            if (
                each.opcode in _FREE
                or each.opcode.endswith("-done")
                or cycles_of(each) is not None
            ):
                continue
            copies += runs * each.opcode.endswith("-start")
            sizes = sorted(array_sizes(each.type))
            # The type of a start op also contains its operand, which is no smaller.
            place = -2 if each.opcode.endswith("-start") else -1
            total += runs * (sizes[place] if len(sizes) >= -place else 0)
    return Unestimated(copies, total)


def control_runs(module: Module) -> dict[str, int]:
    """Executions per step of the entry computation and of bodies of loops and branches."""
    inner = {
        callee
        for lines in module.computations.values()
        for each in lines
        if each.opcode not in ("while", "conditional", "call")
        for callee, _ in calls_of(each, module.computations)
    }
    return {
        name: runs
        for name, runs in module.runs.items()
        if name in module.computations and name not in inner
    }


def kernel_cycles(text: str) -> dict[str, float]:
    """The compiler's estimate of cycles of one execution, by instruction name.

    An instruction without an estimate has 0.
    """
    return {
        each.name: float(cycles_of(each) or 0)
        for lines in parse_hlo(text).computations.values()
        for each in lines
    }
