"""Models from plans: the program that one device, or one pipeline stage, runs.

Their arrays have the shapes that they have on one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshwright.errors import DeployError
from meshwright.features.deploy.source.model import Port, SourceModel
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.tasks import StageTasks
from meshwright.partitioner.decide import Decided
from meshwright.program.ir import Atom, Program, Value
from meshwright.program.ops import COLLECTIVES
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.run.local.execute import run_program

_PLACED = ("all_slice", "axis_index")
"""Kinds of ops whose result depends on which device runs them."""


def read_device_model(decided: Decided, samples: Sequence[Any]) -> SourceModel:
    """The model of one device of a plan; all arguments are inputs, in local shapes.

    samples: an array for each input of the device program. `DeployError` names the
        collectives if devices exchange data.
    """
    captured, program = decided.captured, decided.lowered.program
    names = dict(zip(program.inputs, captured.paths, strict=True))
    ties = {captured.out_paths[o]: captured.paths[i] for o, i in captured.ties.items()}
    return _device_model(
        captured.name or "device_program",
        (program, names, captured.out_paths),
        samples,
        ties,
    )


def stage_program(
    decided: Decided, step: LoweredStep, tasks: StageTasks
) -> tuple[Program, dict[Value, str], tuple[str, ...]]:
    """The forward pass of a pipeline's stage, with names of its inputs and its outputs.

    An input or output of the step has its path as its name. A value that another stage
    computes is `received.N`, and `sent.N` is its name among the outputs of that stage.
    `kept.N` are values that a backward pass needs; `total.N` are sums over microbatches,
    here over one.
    """
    captured, whole = decided.captured, step.lowered.program
    before, forward = tasks.before.program, tasks.forward.program
    made = {value for op in before.ops for value in op.results}
    read = (*before.inputs, *(v for v in forward.inputs if v not in made))
    program = eliminate_dead_code(
        Program(
            tuple(dict.fromkeys(read)),
            (*before.ops, *forward.ops),
            forward.outputs,
            {**before.constants, **forward.constants},
        )
    )
    known: dict[Atom, str] = {
        s.received: f"received.{n}" for n, s in step.sends.items()
    }
    known.update(zip(whole.inputs, captured.paths, strict=True))
    read_values = {a for op in program.ops for a in op.operands} | {*program.outputs}
    inputs = tuple(v for v in program.inputs if v in read_values)
    results: dict[Atom, str] = {s.value: f"sent.{n}" for n, s in step.sends.items()}
    results.update(zip(whole.outputs, captured.out_paths, strict=True))
    sums = tasks.forward.totals
    results.update({program.outputs[n]: f"total.{n}" for n in sums})
    outputs = tuple(
        results.get(atom, f"kept.{n}") for n, atom in enumerate(program.outputs)
    )
    program = Program(inputs, program.ops, program.outputs, program.constants)
    return program, {v: known[v] for v in inputs}, outputs


def read_stage_model(
    name: str,
    found: tuple[Program, Mapping[Value, str], Sequence[str]],
    samples: Sequence[Any],
) -> SourceModel:
    """The model of what `stage_program` returned; all of its inputs are inputs."""
    return _device_model(name, found, samples, {})


def _device_model(
    name: str,
    found: tuple[Program, Mapping[Value, str], Sequence[str]],
    samples: Sequence[Any],
    ties: Mapping[str, str],
) -> SourceModel:
    program, names, out_names = found
    placed = [op for op in program.walk() if op.kind in (*COLLECTIVES, *_PLACED)]
    if placed:
        named = "".join(f"\n  {op.kind} at {op.source}" for op in placed[:5])
        more = f"\n  and {len(placed) - 5} more" if len(placed) > 5 else ""
        raise DeployError(
            f"the devices of this plan need each other, and a deployed model runs alone:"
            f"{named}{more}\nDeploy a plan without collectives, such as data parallel "
            "inference, or the function itself"
        )
    outputs = tuple(
        Port(path, atom.shape, atom.dtype)
        for path, atom in zip(out_names, program.outputs, strict=True)
    )
    return SourceModel(
        name,
        program,
        {},
        names,
        outputs,
        tuple(np.asarray(sample) for sample in samples),
        ties,
        lambda *leaves: run_program(program, leaves),
        tuple(samples),
    )
