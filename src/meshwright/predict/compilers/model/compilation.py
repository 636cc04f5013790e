"""A compiler as a list of named passes, and the compilation that passes transform.

A pass takes a `Compilation` and returns a new one; it changes nothing in place.
`docs/extending.md` says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import Any

from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.predict.compilers.model.kernels import KernelSequence, OnChipCandidates
from meshwright.predict.compilers.model.policies import BufferPolicy, FusionPolicy
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.ir import Op, Program, Value


class Stage(Enum):
    """A group of passes of a compiler; the value says what the passes change."""

    OPS = "ops of the program"
    LAYOUTS = "layouts of its values"
    PRECISION = "dtypes in which values are stored"
    FUSION = "fusions and kernels"
    MEMORY = "memory spaces of values"


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step of a compiler, under XLA's name if XLA has such a step."""

    name: str
    stage: Stage
    run: Callable[[Compilation], Compilation]


@dataclass(frozen=True, slots=True)
class Compiler:
    """A modelled compiler: its passes in order, and policies for fusions and buffers.

    name: the value of `Machine.compiler` that selects this compiler.
    platform: name of the platform in JAX, "" if the compiler stands for no real one.
    async_collectives: kinds of collectives that run at the same time as computation.
    uncombined: kinds of collectives that the compiler does not combine into larger
        ones, so that a program gains by combining them itself.
    combined, combined_bytes: kinds of collectives of which the compiler runs several as
        one, up to so many bytes together.
    """

    name: str
    platform: str
    async_collectives: frozenset[str]
    passes: tuple[Pass, ...]
    fusion: FusionPolicy
    buffers: BufferPolicy
    uncombined: frozenset[str] = frozenset()
    combined: frozenset[str] = frozenset()
    combined_bytes: int = 0

    @property
    def assigns_memory_spaces(self) -> bool:
        """Whether the compiler decides which values stay in scratch memory, as on TPUs.

        If it does not, the chip's fast memory works as a cache.
        """
        return any(each.stage is Stage.MEMORY for each in self.passes)


class Origins(dict[Op, Op]):
    """For each op that a pass has added, the op of the input program that it replaces.

    Later analyses use it to trace a rewritten op back to the user's program.
    """

    def replace(self, op: Op, **fields: Any) -> Op:
        """A copy of an op with some fields changed and the same origin."""
        made = replace(op, **fields)
        self[made] = self.get(op, op)
        return made

    def with_bodies(self, op: Op, rewrite: RewriteFn) -> Op:
        """An op with its bodies rewritten, or the same op if no body changes."""
        bodies = tuple([rewrite(body, self) for body in op.bodies])
        return op if bodies == op.bodies else self.replace(op, bodies=bodies)


RewriteFn = Callable[[Program, Origins], Program]
"""Type of a function that rewrites a program and records the origins of new ops.

It returns the same program if nothing changes.
"""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A pass that reads and changes only the program, not its layouts or fusions."""

    rewrite: RewriteFn

    def __call__(self, compilation: Compilation) -> Compilation:
        origins = Origins(compilation.origins)
        program = self.rewrite(compilation.program, origins)
        return replace(compilation, program=program, origins=origins)


@dataclass(frozen=True, slots=True)
class FusionRewrite:
    """A pass that rewrites the fusions of a program and of loop and branch bodies."""

    rewrite: Callable[[Sequence[Fusion], Program], Sequence[Fusion]]

    def __call__(self, compilation: Compilation) -> Compilation:
        fusions = self._rewritten(compilation.fusions, compilation.program)
        return replace(compilation, fusions=fusions)

    def _rewritten(
        self, fusions: Sequence[Fusion], program: Program
    ) -> tuple[Fusion, ...]:
        found: list[Fusion] = []
        for fusion in fusions:
            pairs = zip(fusion.bodies, fusion.root.bodies, strict=False)
            bodies = tuple([self._rewritten(*pair) for pair in pairs])
            found.append(replace(fusion, bodies=bodies) if bodies else fusion)
        return tuple(self.rewrite(found, program))


_NO_KERNELS = KernelSequence((), (), OnChipCandidates((), 0), ())


@dataclass(frozen=True, slots=True, eq=False)
class Compilation:
    """The state of a device program between two passes of a compiler.

    input: the program before all passes.
    program: the input program after the rewrites of the passes so far.
    layouts: how values are stored; none of them is in scratch memory.
    num_devices: number of devices among which the batch is still to be divided.
    fusions: in the order in which they run; the memory curve has one point for each.
    kernels: fusions after multi-output fusion; the timeline consists of them.
    on_chip: values that may stay in scratch memory, one entry for the program and one
        for each body of its loops and branches.
    """

    input: Program
    program: Program
    compiler: Compiler
    layouts: Layouts
    num_devices: int = 1
    origins: Origins = field(default_factory=Origins)
    fusions: tuple[Fusion, ...] = ()
    kernels: KernelSequence = _NO_KERNELS
    on_chip: tuple[OnChipCandidates, ...] = ()

    def after(self, *stages: Stage) -> Compilation:
        """The compilation after all passes of the given stages, in pipeline order."""
        compilation = self
        for each in self.compiler.passes:
            if each.stage in stages:
                compilation = each.run(compilation)
        return compilation

    def layouts_on(
        self, scratch_bytes: float, excluded: Collection[Value] = ()
    ) -> Layouts:
        """The layouts with values placed in a scratch memory of the given size.

        excluded: values that stay in main memory.
        """
        placed = (each.fitting(scratch_bytes, excluded) for each in self.on_chip)
        return replace(self.layouts, on_chip=frozenset(chain.from_iterable(placed)))


def start_compilation(
    program: Program, compiler: Compiler, tile: tuple[int, int], num_devices: int = 1
) -> Compilation:
    """The state of a compilation before its first pass.

    tile: rows and columns to which the two minor dims of an array are padded.
    num_devices: number of devices among which the batch of the program is still to be
        divided. Passes that count the images of a batch need it. 1 for a device
        program.
    """
    return Compilation(program, program, compiler, Layouts(tile), num_devices)


def compile_program(
    program: Program, compiler: Compiler, tile: tuple[int, int]
) -> Compilation:
    """The state of a device program after all passes of a compiler.

    tile: rows and columns to which the two minor dims of an array are padded.
    """
    return start_compilation(program, compiler, tile).after(*Stage)
