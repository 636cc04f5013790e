"""`deploy`: write a folder that runs a function without JAX, checked against JAX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import jax

from meshwright.app.check.sample import sample_arguments
from meshwright.app.output.notices import warn
from meshwright.app.output.progress import show_progress
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.errors import DeployError, did_you_mean
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan

if TYPE_CHECKING:
    from meshwright.features.deploy.deployment import Deployment
    from meshwright.features.deploy.source.model import SourceModel


def deploy(  # noqa: PLR0913  the options of a target
    fn: Callable[..., Any] | PlanRecord | PipelinePlan,
    args: Sequence[Any] | None = None,
    *,
    to: str,
    out: str | PathLike[str],
    stage: str = "",
    weights: Collection[str] | None = None,
    quantize: str = "",
    calibration: Sequence[Mapping[str, Any]] | None = None,
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
    out: the folder to write, in one that exists. It appears when it is complete.
    stage: the name of a stage, if `fn` is the plan of a pipeline: the stage's forward
        pass is deployed, for one microbatch. What it sends to another stage is an output
        `sent.N`, and there an input `received.N`.
    weights: names of the arguments that become part of the model; by default those that
        are called params, variables, weights, stats or batch_stats, unless `fn` returns
        them as its next state.
    quantize: "int8" has weights and products in 8 bits (to onnx, web or litert).
    calibration: example inputs by name, from which int8 value ranges are measured.
    labels, pixels: only for image models, for the page of "web": names of the classes, and
        the input values of black and white pixels.
    Raises `DeployError` with source lines if the target cannot express the program, or if
    a result differs from JAX's by more than 1e-4 of its largest value (8 rounding steps
    of the dtype if the program has float16 or bfloat16).
    """
    from meshwright.features.deploy.folder import checked_folder
    from meshwright.features.deploy.source.deploy_options import DeployOptions
    from meshwright.features.deploy.targets import find_target
    from meshwright.features.deploy.write_deployment import deploy_model

    target, folder = find_target(to), checked_folder(out)
    options = DeployOptions(labels, pixels, quantize, calibration)
    options.require_fit(target.name)
    _warn_without_examples(quantize, calibration)
    with show_progress(f"deploying {getattr(fn, '__name__', 'a model')} to {to}"):
        if isinstance(fn, PipelinePlan) or stage:
            model = _stage_model(fn, args, stage, seed)
        else:
            model = _model_of(fn, args, weights, seed)
        return deploy_model(model, target, folder, options)


def _warn_without_examples(quantize: str, calibration: Sequence[Any] | None) -> None:
    """Warn if int8 ranges and their error come from the same example arguments."""
    if quantize and not calibration:
        warn(
            "int8 ranges are taken from the example arguments alone, on which the reported "
            "error is measured too; give calibration= about ten inputs of real data"
        )


def _model_of(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None,
    weights: Collection[str] | None,
    seed: int,
) -> SourceModel:
    """The model to deploy, from a function or from the program of one device of a plan."""
    from meshwright.features.deploy.source.device_program import read_device_model
    from meshwright.features.deploy.source.model import read_model

    if isinstance(fn, PlanRecord):
        if args is not None or weights:
            raise DeployError(
                "a plan has its arguments already, and all are inputs: give the plan "
                "alone, mw.deploy(plan, to=..., out=...)"
            )
        return read_device_model(program_of(fn), seed)
    if not callable(fn):
        raise DeployError(f"deploy wants a function or a plan, got {fn!r:.60}")
    if args is None:
        raise DeployError(
            "deploy wants the function's arguments: mw.deploy(fn, args, ...)"
        )
    if not isinstance(args, list | tuple):
        raise DeployError(
            f"the arguments are one {type(args).__name__}; wanted a tuple of them, as in "
            "mw.deploy(fn, (params, x), ...)"
        )
    _require_numbers(args)
    return read_model(fn, sample_arguments(fn, args, seed), weights)


def _require_numbers(args: Sequence[Any]) -> None:
    """Raise `DeployError` for shapes with symbols; deployed models have fixed shapes."""
    for leaf in jax.tree.leaves(tuple(args)):
        shape = getattr(leaf, "shape", ())
        if not all(isinstance(n, int) for n in shape):
            raise DeployError(
                f"an argument has the shape {shape}; a deployed model takes fixed shapes: "
                "give numbers, and deploy again for another batch"
            )


def _stage_model(
    fn: Any, args: Sequence[Any] | None, stage: str, seed: int
) -> SourceModel:
    """The model of the forward pass of one stage of a pipeline."""
    from meshwright.features.deploy.source.device_program import read_stage_model
    from meshwright.features.pipeline.stages.staged_step import stage_programs

    if not isinstance(fn, PipelinePlan) or args is not None:
        raise DeployError(
            "a stage belongs to the plan of a pipeline: mw.deploy(pipelined.plan(*args), "
            "stage=..., to=..., out=...)"
        )
    names = [each.name for each in fn.stages]
    if stage not in names:
        raise DeployError(
            f"the plan has no stage {stage!r}{did_you_mean(stage, names)}: name one of "
            f"{', '.join(names)} in stage="
        )
    if fn.step is None:
        raise DeployError("a planned or saved pipeline has no programs to deploy")
    number = names.index(stage)
    step, tasks = stage_programs(fn.step)[number]
    name = f"{fn.name or 'step'}.{stage}"
    return read_stage_model(name, fn.step.decided[number], step, tasks, seed)
