"""Layouts compression: values stored without the padding of tiles if memory is short.

XLA's `HloRematerialization` compresses values before it recomputes any: a value that
waits for its readers is copied to a layout without padding, and back before it is read.
The time of the copies is not counted.
"""

from collections.abc import Callable
from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.model.dataflow import stored_outputs
from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.predict.memory.memory_curve import MemoryCurve
from meshwright.program.ir import Value

_NUM_ROUNDS = 4
"""Number of times that the peak of memory is determined again, since it moves as values
shrink."""

_LEAST_SHARE = 0.1
"""The padding of a value must exceed this share of the value to be worth the copies."""


def compressed(
    memory: MemoryCurve,
    layouts: Layouts,
    limit_bytes: float,
    compilation: Compilation,
    measure: Callable[[Layouts], MemoryCurve],
) -> tuple[MemoryCurve, Layouts]:
    """Memory and layouts after values lose their padding, the most padded first.

    memory: the curve with `layouts`. measure: computes the curve with other layouts.
    limit_bytes: memory of a device.

    Values are compressed until memory fits. If it never does, or if the compiler does
    not compress, memory and layouts are returned unchanged. A fusion reads and writes
    values with padding; inputs, outputs and what loops carry always have it.
    """
    if not compilation.compiler.buffers.compresses_layouts:
        return memory, layouts
    fusions, candidates = compilation.fusions, _candidates(compilation)
    found, tried = memory, layouts
    unpadded: set[Value] = set()
    for _ in range(_NUM_ROUNDS):
        excess = found.peak_bytes - limit_bytes
        if excess <= 0:
            return found, tried
        at_peak = _accessed(fusions[found.peak]) if found.peak >= 0 else set[Value]()
        saved = {
            value: padding
            for value in found.alive
            if value in candidates
            and value not in at_peak
            and (padding := _padding(value, tried)) > _LEAST_SHARE * tried.size(value)
        }
        if sum(saved.values()) < excess:
            break
        for value in sorted(saved, key=saved.__getitem__, reverse=True):
            if excess <= 0:
                break
            unpadded.add(value)
            excess -= saved[value]
        tried = replace(layouts, unpadded=frozenset(unpadded))
        found = measure(tried)
        # Padding of what one fusion accesses is restored while it runs.
        restored = max(
            sum(_padding(v, layouts) for v in unpadded & _accessed(fusion))
            for fusion in fusions
        )
        found = replace(found, extra_bytes=found.extra_bytes + restored)
    return (found, tried) if found.peak_bytes <= limit_bytes else (memory, layouts)


def _candidates(compilation: Compilation) -> set[Value]:
    """Values that may be compressed: written by a fusion, and not carried by a loop."""
    program, fusions = compilation.program, compilation.fusions
    carried = {v for f in fusions for pair in f.replaces.items() for v in pair}
    fixed = {*program.inputs, *program.constants, *stored_outputs(program)}
    return {v for fusion in fusions for v in fusion.writes} - carried - fixed


def _padding(value: Value, layouts: Layouts) -> int:
    """Bytes of padding of a value; 0 for a value within another one."""
    return max(0, layouts.size(value) - layouts.num_bytes(value))


def _accessed(fusion: Fusion) -> set[Value]:
    """Values that a fusion needs with padding; not what a loop slices or stacks."""
    op = fusion.root
    stacked = [wire for wire in op.wires if wire.is_stacked]
    sliced = {op.operands[w.operand] for w in stacked if w.operand is not None}
    made = {op.results[w.result] for w in stacked if w.result is not None}
    return {*fusion.reads, *fusion.writes} - sliced - made
