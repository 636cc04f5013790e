"""Zoo programs on every target: sizes, errors, latencies beside JAX, and int8's accuracy.

    .venv-deploy/bin/python -m benchmarks deploy deploy [--only vit,gpt] [--out FILE]

Latency is the median of calls in turn with the jitted original, on this CPU, after a first
call of each; the loaders use one thread, JAX as many as it likes. Needs the extra `deploy`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import MeshwrightError
from meshwright.features.deploy.write_deployment import load_deployed

PROGRAMS = (
    "d4pg", "gns", "gpt", "lstm", "mixer", "ranking", "primer", "sngan", "vit", "t5",
    "llm", "moe", "unet3d", "resnet", "efficientnet", "wavenet", "unet",
)  # fmt: skip
TARGETS = ("iree-cpu", "litert", "onnx", "wasm")


def zoo_model(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The inference function of a zoo program, with random numbers added to its weights.

    Some weights begin as zeros, such as the scales of ResNet's last norms, and a converter
    would remove the layers before them.
    """
    fn, (weights, *inputs) = import_module(f"zoo.{name}").inference["tiny"]()
    rng = np.random.default_rng(0)

    def moved(array: Any) -> Any:
        if not jnp.issubdtype(array.dtype, jnp.floating):
            return array
        return array + 0.02 * rng.random(array.shape, np.float32).astype(array.dtype)

    return fn, (jax.tree.map(moved, weights), *inputs)


def measure_program(name: str) -> Iterator[dict[str, Any]]:
    """One row per target: bytes, error, seconds and JAX's seconds, or the refusal."""
    fn, args = zoo_model(name)
    for target in TARGETS:
        row: dict[str, Any] = {"program": name, "target": target}
        with tempfile.TemporaryDirectory() as folder:
            try:
                made = mw.deploy(fn, args, to=target, out=Path(folder, "model"))
            except MeshwrightError as refusal:
                yield row | {"refused": str(refusal)[:300]}
                continue
        yield row | {
            "bytes": made.num_bytes,
            "weight_bytes": made.weight_bytes,
            "error": made.error,
            "latency_s": made.latency_s,
            "jax_s": made.jax_s,
        }


# -- int8 ------------------------------------------------------------------------------


_CALIBRATED = 8
"""Batches from which ranges are read; they are not among those that are scored."""

_SCORED = 72
"""Batches in all; 64 of 32 images tell accuracies that differ by 0.05 %."""


@dataclass(frozen=True)
class Evaluation:
    """A trained model with its zoo evaluation, which is better the higher it is.

    score: of outputs and one batch, whose inputs are `inputs` of the batch.
    """

    fn: Callable[..., Any]
    params: Any
    batches: Sequence[dict[str, Any]]
    input: str
    score: Callable[[Any, dict[str, Any]], float]


def classifier(name: str) -> Evaluation:
    """An image classifier after the steps of its committed run: share of right classes."""
    from zoo import classifier as common
    from zoo.images import made_batches
    from zoo.training import train_step_of

    module = import_module(f"zoo.{name}")
    task = module.classifier(module.TINY)
    state = jax.jit(partial(common.start, task))(jax.random.key(0))
    step = jax.jit(train_step_of(partial(common.loss, task), task.optimizer))
    made = made_batches(task.batch, task.size, task.classes, 0)
    for batch in islice(made, module.workload.steps):
        state, _ = step(state, batch)
    unseen = list(islice(made_batches(task.batch, task.size, task.classes, 1), _SCORED))
    return Evaluation(
        partial(common.scores, task),
        state.params,
        unseen,
        "image",
        lambda scores, batch: float(np.mean(scores.argmax(-1) == batch["label"])),
    )


def ranker() -> Evaluation:
    """The ranking model after the steps of its committed run: NDCG of unseen lists."""
    from zoo import ranking
    from zoo.listwise import ndcg

    state = jax.jit(partial(ranking.start, ranking.TINY))(jax.random.key(0))
    step = jax.jit(ranking.train_step_for(ranking.TINY))
    for batch in islice(ranking.made_batches(ranking.TINY, 0), ranking.workload.steps):
        state, _ = step(state, batch)
    unseen = list(islice(ranking.made_batches(ranking.TINY, 1), _SCORED))
    return Evaluation(
        partial(ranking.scores, ranking.TINY),
        state.params,
        unseen,
        "features",
        lambda scores, batch: float(
            ndcg(scores, batch["labels"], where=batch["where"])
        ),
    )


EVALUATIONS = {
    "ranking": ranker,
    "vit": partial(classifier, "vit"),
    "mixer": partial(classifier, "mixer"),
}


def measure_int8(name: str) -> Iterator[dict[str, Any]]:
    """One row per target: bytes and score of the float and of the int8 model."""
    found = EVALUATIONS[name]()
    calibration = [{found.input: b[found.input]} for b in found.batches[:_CALIBRATED]]
    args = (found.params, found.batches[0][found.input])
    for target in ("litert", "onnx"):
        row: dict[str, Any] = {"program": name, "target": target}
        for kind in ("", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "model")
                made = mw.deploy(
                    found.fn, args, to=target, out=out, quantize=kind,
                    calibration=calibration if kind else (),
                )  # fmt: skip
                model = load_deployed(out)
                scores = [
                    found.score(model(**{found.input: b[found.input]})["out"], b)
                    for b in found.batches[_CALIBRATED:]
                ]
            label = kind or "float"
            row |= {
                f"{label}_score": float(np.mean(scores)),
                f"{label}_bytes": made.files[0][1],
                f"{label}_s": made.latency_s,
            }
        yield row


@benchmark(
    option("--only", default=",".join(PROGRAMS)),
    option("--int8", default=",".join(EVALUATIONS)),
    out=STORED,
)
def main(options: Options) -> None:
    """Print a line a row, and write all rows as JSON after each program."""
    rows: dict[str, list[dict[str, Any]]] = {"targets": [], "int8": []}
    work = [("int8", measure_int8, n) for n in options.int8.split(",") if n]
    work += [("targets", measure_program, n) for n in options.only.split(",") if n]
    for table, measure, name in work:
        for row in measure(name):
            rows[table].append(row)
            print(json.dumps(row), flush=True)
        options.save(rows)


if __name__ == "__main__":
    main()
