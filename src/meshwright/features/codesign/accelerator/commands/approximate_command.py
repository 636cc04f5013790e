"""`meshwright accelerator approximate`: which layer runs on which approximate array."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.cli.arguments.options import AsJson
from meshwright.cli.arguments.target import find_target
from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.folder import (
    read_multipliers,
)
from meshwright.features.codesign.accelerator.approximate.route import (
    RoutedNetwork,
    route,
)
from meshwright.features.codesign.accelerator.design.design import Design


def approximate_command(  # noqa: PLR0913  an option each
    target: Annotated[
        str, Argument(metavar="TARGET", help="path.py[:name]; fn(*weights, inputs)")
    ],
    data: Annotated[
        Path, Argument(metavar="DATA", help=".npz with arrays `inputs` and `labels`")
    ],
    out: Annotated[Path, Option("--out", help="folder for the routing and its trials")],
    multipliers: Annotated[
        Path | None, Option(help="folder of NAME.npy and NAME.toml; default: library")
    ] = None,
    design: Annotated[
        str, Option(help="TOML with a table accelerator, or a preset")
    ] = "tpu-v3",
    max_loss: Annotated[
        float,
        Option("--max-loss", min=0, max=1, help="loss of accuracy allowed: 0.01"),
    ] = 0.0,
    trials: Annotated[int, Option("--trials", min=1, help="routings to try")] = 300,
    engine: Annotated[
        str, Option("--engine", help="learned, or an engine of `nas search`")
    ] = "learned",
    seed: Annotated[
        int, Option("--seed", min=0, max=2**31 - 1, help="random seed")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Give each layer of a network an array with an exact or approximate multiplier.

    Writes routing.json and journal.jsonl; the same command goes on with a journal. Exit
    status 0: power and area are below the exact chip's, 1: they are not, 2: misuse.
    """
    inputs, labels = _read_data(data)
    kinds = None if multipliers is None else read_multipliers(multipliers)
    chip = Design.load(design)
    with show_progress(f"loading {target}"):
        fn, args = find_target(target, is_inference=True).made
    out.mkdir(parents=True, exist_ok=True)
    with show_progress("routing") as show:
        found = route(
            fn,
            args[:-1],
            inputs,
            labels,
            multipliers=kinds,
            design=chip,
            max_loss=max_loss,
            trials=trials,
            engine=engine,
            seed=seed,
            journal=out / "journal.jsonl",
            on_trial=lambda trial: show(f"routing {trial.number + 1} of {trials}"),
        )
    (out / "routing.json").write_text(found.to_json() + "\n", encoding="utf-8")
    print(found.to_json() if as_json else "\n".join(_lines(found)))
    if not (found.figures.power < 1 and found.figures.area < 1):
        raise SystemExit(1)


def _lines(found: RoutedNetwork) -> list[str]:
    figures = found.figures
    width = max(map(len, found.layers))
    return [
        *(
            f"{layer:{width}}  {multiplier.name}"
            for layer, multiplier in zip(found.layers, found.chosen, strict=True)
        ),
        f"accuracy {found.accuracy:.4f}, with exact products {found.exact_accuracy:.4f}",
        f"power {figures.power - 1:+.2%}, area {figures.area - 1:+.2%}, time "
        f"{figures.time - 1:+.2%} of the exact chip's",
        "arrays: " + ", ".join(f"{n} {name}" for name, n in figures.arrays.items()),
        "loss of accuracy and saving:",
        *(
            f"  {loss:+.4f}  power {power - 1:+.2%}  area {area - 1:+.2%}"
            for loss, power, area in found.curve
        ),
    ]


def _read_data(path: Path) -> tuple[Any, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["inputs"], arrays["labels"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as fault:
        raise AcceleratorError(
            f"{path} is no .npz file with `inputs` and `labels` ({fault})"
        ) from None
