"""`deploy`: a function as a folder that runs without JAX, checked against JAX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from meshwright.app.check.sample import sample_arguments
from meshwright.app.output.progress import show_progress
from meshwright.errors import DeployError

if TYPE_CHECKING:
    from meshwright.compile.deploy.deployment import Deployment


def deploy(  # noqa: PLR0913  the options of a target
    fn: Callable[..., Any],
    args: Sequence[Any],
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
    """The record of a folder that runs `fn` elsewhere, after a comparison with JAX.

    fn: a function of pytrees. args: its arguments; a `jax.ShapeDtypeStruct` stands for
        random numbers. Shapes are fixed: the model takes no others.
    to: "iree-cpu", "iree-vulkan", "wasm", "litert", "onnx" or "web" (`meshwright[deploy]`).
    out: the folder to write: model, loader, README. It appears when it is complete.
    weights: names of the arguments that become part of the model; by default those that
        are called params, variables, weights, stats or batch_stats, unless `fn` returns
        them as its next state.
    quantize: "int8" stores weights and computes products in 8 bits ("onnx", "web",
        "litert"); calibration: inputs by name, whose values tell the ranges.
    labels, pixels: of an image model, for the page of "web": names of classes, and the
        values of black and white.
    Raises `DeployError` with source lines if the target cannot express the program, or if
    a result differs from JAX's by more than 1e-4 of its largest value.
    """
    from meshwright.compile.deploy.deploy import deploy_model
    from meshwright.compile.deploy.folder import checked_folder
    from meshwright.compile.deploy.model import read_model
    from meshwright.compile.deploy.options import DeployOptions
    from meshwright.compile.deploy.targets import find_target

    if not callable(fn):
        raise DeployError(f"deploy wants a function, got {fn!r:.60}")
    target, folder = find_target(to), checked_folder(out)
    options = DeployOptions(
        tuple(labels), pixels, quantize, tuple(map(dict, calibration))
    )
    options.require_fit(target.name)
    with show_progress(f"deploying {getattr(fn, '__name__', 'a function')} to {to}"):
        model = read_model(fn, sample_arguments(fn, args, seed), weights)
        return deploy_model(model, target, folder, options)
