"""A plan's device program as a model: what each device runs, on its local shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshwright.compile.deploy.source.model import Port, SourceModel
from meshwright.errors import DeployError
from meshwright.partitioner.decide import Decided
from meshwright.program.ops import COLLECTIVES
from meshwright.run.local.execute import run_program

_PLACED = ("all_slice", "axis_index")
"""Kinds whose result depends on which device runs them."""


def read_device_model(decided: Decided, samples: Sequence[Any]) -> SourceModel:
    """The model of one device of a plan; all arguments are inputs, in their local shapes.

    samples: an array for each input of the device program. `DeployError` names the
    collectives of a program in which devices need each other.
    """
    captured, program = decided.captured, decided.lowered.program
    found = [op for op in program.walk() if op.kind in (*COLLECTIVES, *_PLACED)]
    if found:
        named = "".join(f"\n  {op.kind} at {op.source}" for op in found[:5])
        more = f"\n  and {len(found) - 5} more" if len(found) > 5 else ""
        raise DeployError(
            f"the devices of this plan need each other, and a deployed model runs alone:"
            f"{named}{more}\nDeploy a plan without collectives, such as data parallel "
            "inference, or the function itself"
        )
    outputs = tuple(
        Port(path, atom.shape, atom.dtype)
        for path, atom in zip(captured.out_paths, program.outputs, strict=True)
    )
    return SourceModel(
        captured.name or "device_program",
        program,
        {},
        dict(zip(program.inputs, captured.paths, strict=True)),
        outputs,
        tuple(np.asarray(sample) for sample in samples),
        {captured.out_paths[o]: captured.paths[i] for o, i in captured.ties.items()},
        lambda *leaves: run_program(program, leaves),
        tuple(samples),
    )
