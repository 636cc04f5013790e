"""A device program as one compiler runs it, before it is said how long that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from meshwright.predict.compilers.cpu.library_operands import prepare
from meshwright.predict.compilers.rules import Rules
from meshwright.predict.compilers.tpu.bfloat16_propagation import narrow_values
from meshwright.predict.compilers.tpu.memory_space_assignment import Lives, all_lives
from meshwright.predict.compilers.tpu.space_to_batch import regrouped
from meshwright.predict.compilers.xla.all_reduce_code_motion import sunk
from meshwright.predict.compilers.xla.call_inliner import inline
from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import Fusion
from meshwright.predict.compilers.xla.instruction_fusion import fuse
from meshwright.predict.compilers.xla.kernels import KernelSequence, kernels_of
from meshwright.predict.compilers.xla.layouts import Layout
from meshwright.program.ir import Op, Program, Value


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """What is known of a program once its ops are grouped, by one set of rules.

    program: as the compiler sees it. origins: of ops that stand for others, those.
    layout: of its values, none of them in scratch memory. units: in order, as memory is
    counted over them; passes: those that walk together merged, as time is. lives: of
    values that may stay on the chip, over units, those of bodies included.
    """

    program: Program
    origins: Mapping[Op, Op]
    layout: Layout
    fusions: tuple[Fusion, ...]
    kernels: KernelSequence
    lives: tuple[Lives, ...]

    @property
    def outputs(self) -> list[Value]:
        """What leaves the program, by the names under which it was made."""
        return [v for v in stored_outputs(self.program) if isinstance(v, Value)]

    def layout_on(self, room_bytes: float) -> Layout:
        """The layout where so much scratch memory is the compiler's to place values in."""
        kept = (lives.within(room_bytes) for lives in self.lives)
        return self.layout.keeping(frozenset[Value](chain.from_iterable(kept)))


def fused(program: Program, rules: Rules, tile: tuple[int, int]) -> Fused:
    """A device program under a compiler's rules; `tile` is what layouts are padded to."""
    program, origins = inline(program, rules)
    if rules.sinks:
        program, changed = sunk(program)
        origins = _through(origins, changed)
    if rules.calls_library:
        program, changed = prepare(program)
        origins = _through(origins, changed)
    layout = Layout(tile)
    layout.note_shapes(program)
    if rules.regroups:
        program, changed = regrouped(program, layout)
        origins = _through(origins, changed)
    if rules.narrows:
        layout.narrow = narrow_values(program)
    units = fuse(program, layout, rules)
    return Fused(
        program,
        origins,
        layout,
        units,
        kernels_of(program, layout, units),
        all_lives(units, stored_outputs(program), layout, rules.receives)
        if rules.places
        else (),
    )


def _through(origins: Mapping[Op, Op], changed: Mapping[Op, Op]) -> Mapping[Op, Op]:
    """Which ops stand for which, after ops were made anew once more."""
    return {**origins, **{new: origins.get(o, o) for new, o in changed.items()}}
