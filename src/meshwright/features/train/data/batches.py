"""Batches in one global order; each process reads only the rows that it needs.

The order depends on the seed alone: Grain shuffles a source anew for each epoch of it, and
mixes several sources by their weights. Batch `n` has the examples `n * batch` to
`(n + 1) * batch - 1` of the order. So the position in the data is one number, and does not
depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from meshwright.errors import RecipeError, import_extra
from meshwright.features.train.data.examples import Mixture


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """The endless numbered batches of examples.

    batch: examples per batch. seed: seed of the order.
    """

    source: Mixture
    batch: int
    seed: int

    def read(self, number: int, rows: Sequence[int] | None = None) -> Any:
        """Batch `number` as a pytree of arrays [rows, ...].

        rows: positions in the batch to read; `None` for all.
        """
        dataset = self.ordered(self.source.parts)
        chosen = range(self.batch) if rows is None else rows
        examples = [dataset[number * self.batch + row] for row in chosen]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *examples)

    def shapes(self) -> Any:
        """The types of a batch, as a pytree of `ShapeDtypeStruct`s."""
        first = next(iter(self.source.parts.values()))
        example = jax.tree.map(np.asarray, first[0])
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((self.batch, *x.shape), x.dtype), example
        )

    def ahead(self, start: int, rows: Sequence[int] | None = None) -> Iterator[Any]:
        """The batches from number `start` on, read ahead in a background thread.

        rows: positions in each batch to read; `None` for all.
        """
        grain = import_grain()
        numbers = grain.MapDataset.range(start, start + 2**40)
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
        return iter(
            numbers.map(lambda n: self.read(int(n), rows)).to_iter_dataset(options)
        )

    def ordered(self, parts: Mapping[str, Any]) -> Any:
        """Grain's endless dataset of all examples in the order of the batches.

        parts: a sequence in place of each source, as long as the source.
        """
        grain = import_grain()
        shuffled = [
            grain.MapDataset.source(each).seed(self.seed + number).shuffle().repeat()
            for number, each in enumerate(parts.values())
        ]
        weights = [self.source.weights[name] for name in parts]
        return grain.MapDataset.mix(shuffled, weights)


def import_grain() -> Any:
    """The module `grain`; a `RecipeError` that names the pip extra if it is missing."""
    return import_extra("grain", "training needs Grain", "train", RecipeError)
