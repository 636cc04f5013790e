"""Residuals of a plan: values that the forward pass saves for the backward pass."""

from collections.abc import Sequence

from meshwright.app.output.table import columns
from meshwright.errors import PlanError
from meshwright.features.autodiff.residual import Residual, list_residuals
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.decide import Decided
from meshwright.program.ir import show_type
from meshwright.program.rewrite.rematerialization import backward_start, residuals

_LARGEST = 20


def residuals_of_step(decided: Decided) -> tuple[Residual, ...]:
    """The residuals that one device saves in the forward pass, the largest first.

    The backward pass is taken to begin at the op where most bytes are live, as in the
    tactic `recompute`, which reduces this list. Raises `PlanError` for a step that saves
    nothing.
    """
    program = decided.lowered.program
    values = residuals(program, backward_start(program))
    if not values:
        raise PlanError(
            "the step has no residuals, as it computes no gradient; wanted a train step, "
            "or a loss: a function whose result is one number"
        )
    return list_residuals(values, program, decided.captured.paths)


def show_residuals(name: str, found: Sequence[Residual], full: bool = False) -> str:
    """Text with one line for each residual: bytes, type and source line.

    full: show all residuals, not only the largest.
    """
    saved = [r for r in found if not r.is_input]
    inputs = [r for r in found if r.is_input]
    total = show_bytes(sum(r.num_bytes for r in saved))
    lines = [f"{name} saves residuals for its backward pass: {len(saved)}, {total}"]
    if inputs:
        more = show_bytes(sum(r.num_bytes for r in inputs))
        lines[0] += f"; inputs that it also reads: {len(inputs)}, {more}"
    shown = saved if full else saved[:_LARGEST]
    rows = (
        (show_bytes(r.num_bytes), f" {show_type(r.shape, r.dtype)}", r.name)
        for r in shown
    )
    lines += columns(rows, (">11", "25", ""), gap=" ")
    rest = saved[len(shown) :]
    if rest:
        size = show_bytes(sum(r.num_bytes for r in rest))
        lines.append(f"  and {len(rest)} smaller ones, {size} (--full shows all)")
    return "\n".join(lines)
