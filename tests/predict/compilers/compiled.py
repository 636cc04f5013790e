"""Programs after the fusion passes of a compiler, for tests that look at these alone."""

from dataclasses import replace

from meshwright.predict.compilers.model.compilation import Stage, start_compilation
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.memory.buffer_assignment import memory_of


def fused(program, compiler=TPU, tile=(1, 1), bfloat16=()):
    """The compilation of a program that other passes have left as it is."""
    begun = start_compilation(program, compiler, tile)
    layouts = begun.layouts.changed(bfloat16=frozenset(bfloat16))
    return replace(begun, layouts=layouts).after(Stage.FUSION)


def fusions_of(program, compiler=TPU, bfloat16=()):
    """The fusions of a program."""
    return fused(program, compiler, bfloat16=bfloat16).fusions


def fused_memory(program, aliases=None, compiler=TPU, tile=(1, 1)):
    """The memory of a program."""
    return memory_of(fused(program, compiler, tile), aliases or {})
