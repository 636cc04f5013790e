"""Shares of a machine's peak that the operations of a step reach."""

from dataclasses import dataclass

from meshwright.machine import Machine
from meshwright.predict.roofline.work import program_work, recomputed_flops
from meshwright.program.ir import Program


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of a machine's peak, as defined by Chowdhery et al., PaLM (2022).

    mfu: share of the machine's 16-bit peak that the model's operations reach (model FLOPs
        utilisation). An operation that a step repeats to save memory counts once.
    hfu: the same for all operations, also repeated ones (hardware FLOPs utilisation).
    """

    mfu: float
    hfu: float


def utilisation(
    original: Program, rewritten: Program, step_time_s: float, machine: Machine
) -> Utilisation:
    """The utilisation of a machine by a step; 0 for a step that takes no time.

    original: the program before it was partitioned.
    rewritten: the same after rewrites, which may compute values again.
    """
    model = program_work(original, with_recomputation=False).flops
    hardware = model + recomputed_flops(rewritten)
    peak = step_time_s * machine.chip.half_flops_per_s * machine.num_devices
    return Utilisation(model / peak, hardware / peak) if peak else Utilisation(0.0, 0.0)
