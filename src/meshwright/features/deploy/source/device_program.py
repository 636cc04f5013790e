"""Models from plans: the program that one device, or one pipeline stage, runs.

Their arrays have the shapes that they have on one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from meshwright.app.check.sample import sample
from meshwright.errors import DeployError
from meshwright.features.deploy.source.model import Port, SourceModel
from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.tasks import StageTasks
from meshwright.partitioner.decide import Decided
from meshwright.program.analysis.input_ranges import find_ranges
from meshwright.program.ir import Atom, Program, Value
from meshwright.program.ops import COLLECTIVES
from meshwright.program.rewrite.dead_code import eliminate_dead_code
from meshwright.run.local.execute import run_program

_PLACED = ("all_slice", "axis_index")
"""Kinds of ops whose result depends on which device runs them."""


def read_device_model(decided: Decided, seed: int) -> SourceModel:
    """The model of one device of a plan; all arguments are inputs, in local shapes.

    seed: of random samples of the inputs. `DeployError` names the collectives if devices
        exchange data.
    """
    captured, program = decided.captured, decided.lowered.program
    names = dict(zip(program.inputs, captured.paths, strict=True))
    ties = {captured.out_paths[o]: captured.paths[i] for o, i in captured.ties.items()}
    name = captured.name or "device_program"
    return _device_model(name, program, names, captured.out_paths, ties, seed)


def read_stage_model(
    name: str, decided: Decided, step: LoweredStep, tasks: StageTasks, seed: int
) -> SourceModel:
    """The model of the forward pass of a pipeline's stage.

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
    paths: dict[Atom, str] = {
        s.received: f"received.{n}" for n, s in step.sends.items()
    }
    paths.update(zip(whole.inputs, captured.paths, strict=True))
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
    names = {value: paths[value] for value in inputs}
    return _device_model(name, program, names, outputs, {}, seed)


def _device_model(
    name: str,
    program: Program,
    names: Mapping[Value, str],
    out_names: Sequence[str],
    ties: Mapping[str, str],
    seed: int,
) -> SourceModel:
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
    samples = _local_samples(program, seed)
    return SourceModel(
        name=name,
        program=program,
        weights={},
        names=names,
        outputs=outputs,
        samples=tuple(np.asarray(each) for each in samples),
        ties=ties,
        fn=lambda *leaves: run_program(program, leaves),
        args=tuple(samples),
    )


def _local_samples(program: Program, seed: int) -> list[Any]:
    """A random array for each input of a device program, with valid indices."""
    ranges, rng = find_ranges(program), np.random.default_rng(seed)
    return [
        sample(
            jax.ShapeDtypeStruct(value.shape, value.dtype),
            rng,
            ranges.bounds.get(i),
            i in ranges.positive,
        )
        for i, value in enumerate(program.inputs)
    ]
