"""Seconds of a timeline by block of a model, and what limits each block.

A block is named by the scopes around its ops, such as names of flax modules or
`jax.named_scope`s: `stage_1/rest`. Ops without a scope are named by their source line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.machine import Chip
from meshwright.predict.roofline.matrix_unit import product_flops
from meshwright.predict.simulate.timeline import (
    Span,
    Timeline,
    collective_overlaps,
    kernel_runs,
)
from meshwright.program.ir import Op

_DEPTH = 2
"""Number of nested scopes below the outermost that name a block."""

_UNNAMED = "(other)"
"""Name of kernels at the end of a program without scope and source line."""

Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockLatency:
    """Seconds of one block of a model.

    bounds: seconds by what limits them; see `Latency.bounds`.
    matrix_s: seconds of its products at the peak of the matrix unit.
    memory_s: seconds of its bytes at the peak of main memory.
    num_kernels: kernels that are launched in one call.
    """

    name: str
    bounds: Mapping[str, float]
    matrix_s: float
    memory_s: float
    num_kernels: int

    @property
    def seconds(self) -> float:
        """Seconds of all kernels of the block, and of transfers while nothing runs."""
        return sum(self.bounds.values())

    @property
    def bound(self) -> str:
        """The resource that limits most of the block's seconds."""
        return max(self.bounds, key=lambda bound: self.bounds[bound])

    @property
    def roofline_share(self) -> float:
        """The block's roofline as a share of its seconds."""
        return max(self.matrix_s, self.memory_s) / (self.seconds or 1.0)


class _Sums:
    """Sums of one block while the timeline is read."""

    def __init__(self) -> None:
        self.bounds: dict[str, float] = {}
        self.matrix_s = self.memory_s = 0.0
        self.num_kernels = 0

    def add_kernel(self, span: Span, times: int, chip: Chip) -> None:
        """Add all executions of a kernel."""
        bound = "launch" if span.bound is None else span.bound.value
        self.add(bound, times * (span.end_s - span.start_s))
        self.matrix_s += times * peak_matrix_s(span.fusion.root, chip)
        self.memory_s += times * span.num_bytes / chip.hbm_bytes_per_s
        self.num_kernels += times

    def add(self, bound: str, seconds: float) -> None:
        self.bounds[bound] = self.bounds.get(bound, 0.0) + seconds


def peak_matrix_s(op: Op, chip: Chip) -> float:
    """Seconds of a product at the peak of the matrix unit, without padding."""
    flops = product_flops(op)
    if not flops:
        return 0.0
    return flops / chip.peak_flops_per_s(op.operands[0].dtype)


def block_latencies(timeline: Timeline, chip: Chip) -> tuple[BlockLatency, ...]:
    """The blocks of a timeline in the order in which they first run."""
    kernels = list(kernel_runs(timeline))
    waits = [(f.root, s) for f, s, _ in collective_overlaps(timeline) if s > 0]
    roots = [span.fusion.root for span, _ in kernels] + [root for root, _ in waits]
    names = _block_names(roots)
    found: dict[str, _Sums] = {}
    for span, times in kernels:
        if span.end_s > span.start_s:
            sums = found.setdefault(names[span.fusion.root], _Sums())
            sums.add_kernel(span, times, chip)
    for root, seconds in waits:
        found.setdefault(names[root], _Sums()).add("links", seconds)
    return tuple(
        BlockLatency(name, s.bounds, s.matrix_s, s.memory_s, s.num_kernels)
        for name, s in found.items()
    )


def _block_names(roots: Sequence[Op]) -> dict[Op, str]:
    """The name of each op's block: its module, cut to `_DEPTH` scopes below the root.

    A copy that the compiler adds belongs to the block that it is made for, the next one.
    """
    scopes = {op: scope_of(op) for op in roots}
    inner = {scope[:n] for scope in scopes.values() for n in range(len(scope))}
    skipped = len(_common(scopes.values()))
    found: dict[Op, str] = {}
    following = ""
    for op in reversed(roots):
        scope = scopes[op]
        module = scope if scope in inner else scope[:-1]
        kept = module[skipped : skipped + _DEPTH] or scope[skipped : skipped + 1]
        own = "/".join(kept or scope[-1:]) or str(op.source)
        found[op] = following = own or following or _UNNAMED
    return found


def scope_of(op: Op) -> Scope:
    """The scopes around an op of the traced program, outermost first."""
    return getattr(op.source, "scope", ())


def _common(scopes: Iterable[Scope]) -> Scope:
    """The longest start that all scopes have in common, those without any left out."""
    return tuple(_shared(list(filter(None, scopes))))


def _shared(scopes: list[Scope]) -> Iterator[str]:
    for names in zip(*scopes, strict=False):
        if len(set(names)) > 1:
            return
        yield names[0]
