"""The position in the training data: where a run is, and whether its data is the same.

Batches have numbers in one order, so that the position is a number, if the order is known.
It depends on entries of the recipe, the number of examples and Grain, and all these are
saved beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meshwright.errors import RecipeError
from meshwright.features.checkpoint import Restored
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import Mixture, Records, Windows
from meshwright.features.train.recipes.recipe import DataPart

_SAMPLES = 64
"""Examples of a large file, and places of the order, that are hashed."""

RECORDS, INDEX = "records", "index"
"""Entries of a position: the number of examples of each source, and the hash of all."""


def identity_of(mixture: Mixture, batches: Batches) -> dict[str, Any]:
    """The number of examples of each source, and a hash of the examples and their order.

    mixture: all examples. batches: those to train on.
    The hash has all bytes of texts, some examples of other files, and the beginning of the
    order. Of a sequence that a function returned it has the length alone.
    """
    records = {name: len(each) for name, each in mixture.parts.items()}
    found = blake2b(json.dumps(records).encode(), digest_size=16)
    for each in mixture.parts.values():
        for values in _sampled(each):
            found.update(np.ascontiguousarray(values))
    numbers = {name: range(len(each)) for name, each in batches.source.parts.items()}
    order = islice(batches.ordered(numbers), _SAMPLES)
    found.update(json.dumps([int(each) for each in order]).encode())
    return {RECORDS: records, INDEX: found.hexdigest()}


def _sampled(source: Any) -> Iterator[Any]:
    """Arrays whose bytes tell the content of a source of files from another one."""
    if isinstance(source, Windows) and not isinstance(source.tokens, np.memmap):
        yield source.tokens
    elif isinstance(source, Windows | Records):
        places = np.linspace(0, len(source) - 1, min(len(source), _SAMPLES))
        for place in places.astype(int):
            yield from jax.tree.leaves(source[int(place)])


def position_of(
    data: DataPart, identity: Mapping[str, Any], number: int
) -> dict[str, Any]:
    """The position in the data after `number` batches, as JSON data.

    It has the recipe's entries that determine the order of the examples, and the identity
    of the data, so that a resumed run can check them.
    """
    position = {
        "batches": number,
        "batch": data.batch,
        "seed": data.seed,
        "sequence": data.sequence,
        "held_out": data.held_out,
        "examples": [*data.text, data.tokens, data.source],
        "options": data.options,
        "mixture": [
            [name, each.weight, *each.text, each.tokens, each.source, each.options]
            for name, each in data.mixture.items()
        ],
        **identity,
    }
    return json.loads(json.dumps(position, default=str))  # dates of TOML become text


def require_same_data(
    wanted: Mapping[str, Any], progress: Restored, folder: Path
) -> None:
    """Raise `RecipeError` if a saved run used other data or another order.

    wanted: the position in the data that the recipe gives, as `position_of` makes it.
    """
    saved = progress.position
    before: Mapping[str, Any] = saved if isinstance(saved, Mapping) else {}
    for name, value in wanted.items():
        if name not in before:
            raise RecipeError(
                f"step {progress.step} in {folder} was saved without data.{name} (its "
                f"position is {saved!r:.200}), so that the order of its examples is not "
                "known: another program or release has saved it. Name another folder with "
                "--out"
            )
        if before[name] != value and name in (RECORDS, INDEX):
            raise RecipeError(
                f"{folder} was trained on other data: {_change(before, wanted)}. Examples "
                "would be repeated or left out. Restore the data, or name another folder "
                "with --out"
            )
        if before[name] != value:
            raise RecipeError(
                f"{folder} was trained with data.{name} = {before[name]!r}, the recipe has "
                f"{value!r}: its place in the data would not be the same. Restore the "
                "entry, or name another folder with --out"
            )


def _change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The difference between the data of two positions, in words."""
    for name, count in now[RECORDS].items():
        saved = before[RECORDS].get(name)
        if saved != count:
            of = f" of {name}" if name else ""
            return f"it had {saved} examples{of}, now there are {count}"
    return "it has the same number of examples, but they or their order have changed"
