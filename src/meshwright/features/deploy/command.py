"""`meshwright deploy`: a model as a folder that runs without JAX."""

from pathlib import Path
from typing import Annotated

import numpy as np
from typer import Option

import meshwright.cli.arguments.options as options
from meshwright.app.step.load_module import load_module
from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import DeployError
from meshwright.features.deploy.deploy import deploy


def deploy_command(  # noqa: PLR0913  the options of a command
    target: options.TargetText,
    to: Annotated[str, Option(help="iree-cpu, iree-vulkan, wasm, litert, onnx or web")],
    out: Annotated[Path, Option(help="folder to write")],
    weights: Annotated[
        str | None, Option(help="arguments that become part of the model: a,b")
    ] = None,
    quantize: Annotated[str, Option(help="int8: weights and products in 8 bits")] = "",
    calibration: Annotated[
        Path | None, Option(help="npz of examples of each input, for int8")
    ] = None,
    labels: Annotated[
        Path | None, Option(help="file with the name of one class a line")
    ] = None,
    step: Annotated[
        bool, Option("--step", help="deploy a training target's step, not its model")
    ] = False,
    seed: options.SearchSeed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Write a model, a loader in Python and a README, after a comparison with JAX.

    If the target is a training step and its module has a dict `inference` with an entry
    of the same name, that function is deployed; --step deploys the step itself.
    """
    found = find_target(target)
    if not step:
        found = inference_of(found)
    record = deploy(
        found.fn,
        found.args,
        to=to,
        out=out,
        weights=None if weights is None else weights.split(","),
        quantize=quantize,
        calibration=None if calibration is None else _examples(calibration),
        labels=() if labels is None else _lines(labels),
        seed=seed,
    )
    print(record.to_json() if as_json else record)


def inference_of(found: Target) -> Target:
    """The function to deploy for a target that is a training step.

    If the target's module has a dict `inference` with an entry of the target's name, it is
    that entry; otherwise the target itself.
    """
    place, _, name = found.name.rpartition(":")
    table = getattr(load_module(place), "inference", {})
    if name not in table:
        return found
    make = table[name]
    return Target(f"{place}:{make.__name__}", make, found.schedules)


def _examples(path: Path) -> list[dict[str, np.ndarray]]:
    """Examples from an npz file whose arrays are named after the model's inputs.

    The first dim of each array counts the examples; each example has one array per input.
    """
    try:
        with np.load(path) as arrays:
            stacked = dict(arrays)
    except (OSError, ValueError, AttributeError) as error:
        raise DeployError(f"cannot read the examples in {path}: {error}") from None
    counts = {name: len(array) if array.ndim else 0 for name, array in stacked.items()}
    if not counts or len(set(counts.values())) > 1 or not min(counts.values()):
        raise DeployError(
            f"{path} has {counts or 'no'} examples by input; wanted an npz file with one "
            "array per input, all with the same number of examples as leading dim"
        )
    number = min(counts.values())
    return [{name: a[i] for name, a in stacked.items()} for i in range(number)]


def _lines(path: Path) -> list[str]:
    """The labels in a text file, one per line."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DeployError(f"cannot read the labels in {path}: {error}") from None
