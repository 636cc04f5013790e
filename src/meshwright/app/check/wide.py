"""The check in float32, of programs that compute with narrower floats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.app.check.check import check_outputs
from meshwright.app.check.report import CheckReport
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.tactics import Recorded, decisions_of
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.capture.wide_floats import (
    can_widen,
    has_low_precision,
    widen_array,
    widen_floats,
)
from meshwright.run.local import Executable, make_executable
from meshwright.run.local.execute import run_program


@dataclass(frozen=True, eq=False)
class WideProgram:
    """A program and its partitioned form, both in float32.

    original: function from flat leaves to flat outputs.
    """

    paths: tuple[str, ...]
    original: Callable[..., list[Any]]
    partitioned: Executable

    def check(self, leaves: Sequence[Any]) -> CheckReport:
        """The errors on these leaves, whose floats are widened."""
        inputs = [widen_array(leaf) for leaf in leaves]
        return check_outputs(self.paths, self.original, self.partitioned, inputs)


def widen_program(decided: Decided, mesh: Mesh) -> WideProgram | None:
    """The program in float32, with the same decisions taken.

    `None` for a program without narrower floats, or with a `shard_map` of the user's own.
    """
    program = decided.work.graph.program  # tactics have rewritten it already
    if not has_low_precision(program) or not can_widen(program):
        return None
    wide = widen_floats(program)
    captured = replace(decided.captured, program=wide)
    same = Recorded(decisions_of(decided.work), any_types=True)
    again = decide(captured, mesh, (same,), decided.gather, workarounds=XLA_WORKAROUNDS)

    def original(*inputs: Any) -> list[Any]:
        return run_program(wide, inputs)

    run = make_executable(again.lowered, (), mesh)
    return WideProgram(decided.captured.out_paths, original, run)
