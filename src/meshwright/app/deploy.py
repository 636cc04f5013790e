"""`deploy`: write a folder that runs a function without JAX, checked against JAX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from meshwright.app.check.sample import sample, sample_arguments
from meshwright.app.output.progress import show_progress
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.errors import DeployError
from meshwright.partitioner.decide import Decided
from meshwright.program.analysis.input_ranges import find_ranges

if TYPE_CHECKING:
    from meshwright.compile.deploy.deployment import Deployment
    from meshwright.compile.deploy.source.model import SourceModel


def deploy(  # noqa: PLR0913  the options of a target
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None = None,
    *,
    to: str,
    out: str | PathLike[str],
    weights: Collection[str] | None = None,
    quantize: str = "",
    calibration: Sequence[Mapping[str, Any]] = (),
    labels: Sequence[str] = (),
    pixels: tuple[float, float] = (-1.0, 1.0),
    seed: int = 0,
) -> Deployment:
    """Write a folder that runs `fn` without JAX, and return a record of it.

    Results are compared with JAX's before the folder appears.
    fn: a function of pytrees, or a plan; for a plan the program of one device is deployed.
    args: arguments of `fn`, with `jax.ShapeDtypeStruct`s to stand for random numbers; None
        for a plan. The deployed model takes these shapes only.
    to: "iree-cpu", "iree-vulkan", "wasm", "litert", "onnx" or "web" (`meshwright[deploy]`).
    out: the folder to write: model, loader, README. It appears when it is complete.
    weights: names of the arguments that become part of the model; by default those named
        params, variables, weights, stats or batch_stats, unless `fn` returns them as its
        next state.
    quantize: "int8" stores weights and computes products in 8 bits ("onnx", "web",
        "litert").
    calibration: example inputs by name, from which int8 value ranges are measured.
    labels, pixels: only for image models, for the page of "web": names of the classes, and
        the input values of black and white pixels.
    Raises `DeployError` with source lines if the target cannot express the program, or if
    a result differs from JAX's by more than 1e-4 of its largest value.
    """
    from meshwright.compile.deploy.deploy import deploy_model
    from meshwright.compile.deploy.folder import checked_folder
    from meshwright.compile.deploy.source.options import DeployOptions
    from meshwright.compile.deploy.targets import find_target

    target, folder = find_target(to), checked_folder(out)
    options = DeployOptions(
        tuple(labels), pixels, quantize, tuple(dict(each) for each in calibration)
    )
    options.require_fit(target.name)
    with show_progress(f"deploying {getattr(fn, '__name__', 'a model')} to {to}"):
        model = _model_of(fn, args, weights, seed)
        return deploy_model(model, target, folder, options)


def _model_of(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None,
    weights: Collection[str] | None,
    seed: int,
) -> SourceModel:
    """The model to deploy, from a function or from the program of one device of a plan."""
    from meshwright.compile.deploy.source.device_program import read_device_model
    from meshwright.compile.deploy.source.model import read_model

    if isinstance(fn, PlanRecord):
        if args is not None or weights:
            raise DeployError(
                "a plan has its arguments already, and all are inputs: give the plan "
                "alone, mw.deploy(plan, to=..., out=...)"
            )
        decided = program_of(fn)
        return read_device_model(decided, _local_samples(decided, seed))
    if not callable(fn):
        raise DeployError(f"deploy wants a function or a plan, got {fn!r:.60}")
    if args is None:
        raise DeployError(
            "deploy wants the function's arguments: mw.deploy(fn, args, ...)"
        )
    return read_model(fn, sample_arguments(fn, args, seed), weights)


def _local_samples(decided: Decided, seed: int) -> list[Any]:
    """Random inputs for a device program; integers are valid indices."""
    program = decided.lowered.program
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
