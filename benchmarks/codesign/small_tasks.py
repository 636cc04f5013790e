"""Three small tasks with a hand-made model each: digits, made images, and bytes of text.

Images are classified by the models of `macro_space`, which are compiled once for all; those
of digits are in `digits_table.csv`. Text is predicted by decoders of the zoo's space of
sequences, also with `meshwright nas search benchmarks/codesign/small_tasks.py:text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.codesign import digits, macro_space
from benchmarks.codesign.macro_table import TableLookup
from benchmarks.codesign.train_table import STEPS
from meshwright.codesign import nas
from zoo import sequence_space
from zoo.images import made_batches
from zoo.text import load_text

SEQUENCE = 16
"""Bytes of a text."""


TRAININGS = 3

type Evaluate = Callable[[dict[str, Any]], dict[str, float]]


@dataclass(frozen=True, slots=True)
class SmallTask:
    """A space, its hand-made model, and what trains and prices its models.

    searched, confirmed, judged: three evaluations, each with the mean accuracy of three
        trainings from seeds of their own; the last one on test data.
    """

    space: nas.Space
    baseline: Mapping[str, Any]
    searched: Evaluate
    confirmed: Evaluate
    judged: Evaluate
    target: Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]]


# -- images ------------------------------------------------------------------------

Images = tuple[Any, Any]
"""Images and labels, of which the first `digits.TRAINED` are for training."""


def _images_task(
    data: Images, test: Images, classes: int, table: Evaluate | None = None
) -> SmallTask:
    """Models of `macro_space`; the hand-made one is a residual net of whole convolutions.

    Depthwise blocks in every place are more of a mobile net, but one of the worst in ten
    after so few steps (0.73 on digits, where whole convolutions reach 0.89).

    table: figures of the search, if they are known already.
    """
    colours = data[0].shape[-1]
    init = partial(macro_space.init, colours=colours, classes=classes)
    train = digits.accuracies(init, macro_space.apply, STEPS, 1)

    def trained(
        arrays: Images, first: int, candidate: Mapping[str, Any]
    ) -> dict[str, float]:
        kinds = jnp.array(
            [macro_space.KINDS.index(kind) for kind in candidate.values()]
        )
        found = [
            train(jax.random.key(1_000_000 + seed), *arrays, kinds)[-1]
            for seed in range(first, first + TRAININGS)
        ]
        return {"accuracy": float(np.mean(found))}

    def target(candidate: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        kinds = list(candidate.values())
        params = jax.eval_shape(partial(init, kinds=kinds), jax.random.key(0))

        def serve(params: Any, images: Any) -> Any:
            return macro_space.apply(params, images, kinds)

        return serve, (params, jax.ShapeDtypeStruct((128, 8, 8, colours), jnp.float32))

    return SmallTask(
        macro_space.SPACE,
        dict.fromkeys(macro_space.SPACE.parts, "fused"),
        table or partial(trained, data, 0),
        partial(trained, data, 10),
        partial(trained, test, 20),
        target,
    )


@cache
def digits_task() -> SmallTask:
    """8 x 8 digits of the table; what a search and the last judge see are the same."""
    return _images_task(digits.digits(), digits.digits(), 10, TableLookup())


@cache
def shapes_task() -> SmallTask:
    """Made images of 8 x 8 pixels and 16 classes, 500 to search by and 500 to judge by."""
    sizes = (digits.TRAINED, 500, 500)
    train, *others = (
        next(made_batches(size, 8, 16, seed)) for seed, size in enumerate(sizes)
    )
    data, test = (
        tuple(
            jnp.concatenate([train[name], other[name]]) for name in ("image", "label")
        )
        for other in others
    )
    return _images_task(data, test, 16)


# -- bytes of text -----------------------------------------------------------------


def text_windows() -> dict[str, tuple[Any, Any]]:
    """Windows of the zoo's text and what follows each byte; the last 20 % are unseen."""
    text = np.asarray(load_text()).astype(np.int32)
    ends = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
    found: dict[str, tuple[Any, Any]] = {}
    for name, (begin, end) in ends.items():
        part = text[int(begin * len(text)) : int(end * len(text))]
        starts = np.arange(0, len(part) - SEQUENCE - 1, 3)
        windows = np.stack([part[i : i + SEQUENCE + 1] for i in starts])
        found[name] = windows[:, :-1], windows[:, 1:]
    return found


def _trained(
    space: nas.Space, baseline: Mapping[str, Any], build: Any, data: Any, steps: int
) -> SmallTask:
    """A task whose models are trained when they are asked for."""
    parts = data()

    def evaluation(part: str, seed: int) -> nas.Trained:
        arrays = (*parts["train"], *parts[part])
        more = {"seed": seed, "trainings": TRAININGS, "serve_batch": 128}
        return nas.Trained(build, arrays, steps=steps, **more)

    searched = evaluation("validation", 0)
    confirmed, judged = evaluation("validation", 10), evaluation("test", 20)
    return SmallTask(space, baseline, searched, confirmed, judged, searched.target)


@cache
def text_task() -> SmallTask:
    """Windows of 16 bytes; a decoder of two layers is the hand-made model."""
    space = sequence_space.sequence_space(
        layers=nas.Choice(1, 2),
        d_model=nas.Choice(16, 32, 64),
        heads=nas.Choice(1, 2, 4),
        d_head=nas.Choice(8, 16),
        queries_per_key=nas.Choice(1, 2),
        ffn_ratio=nas.Choice(1.0, 2.0, 4.0),
        gated=nas.Choice(False, True),
        activation=nas.Choice("gelu", "squared_relu"),
        norm=nas.Choice("layer", "rms"),
        block=nas.Choice("plain", "convolved"),
    )
    hand = {
        "layers": 2, "d_model": 32, "heads": 4, "d_head": 8, "queries_per_key": 1,
        "ffn_ratio": 4.0, "gated": False, "activation": "gelu", "norm": "layer",
        "block": "plain",
    }  # fmt: skip
    task = {"vocab": 128, "sequence": SEQUENCE, "scan": False}
    build = partial(sequence_space.build, **task)
    return _trained(space, hand, build, text_windows, 100)


def text() -> tuple[nas.Space, Any]:
    """The space and the evaluation of text, for the command line."""
    return text_task().space, text_task().searched


TASKS = {"digits": digits_task, "shapes": shapes_task, "text": text_task}
