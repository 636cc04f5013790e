"""Sources of training examples: text files, token files, and the user's own sequences.

A source has a length and returns example `i` as a pytree of NumPy arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from meshwright.errors import RecipeError
from meshwright.features.train.recipes.model import call_named
from meshwright.features.train.recipes.recipe import DataPart, SourcePart

_WANTED = "wanted a function that returns a sequence of examples, with len() and [i]"


@runtime_checkable
class Examples(Protocol):
    """A sequence of examples with random access."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Sources of examples by name, and the weights by which batches mix them.

    The only source of a recipe without a mixture has the name "".
    """

    parts: Mapping[str, Examples]
    weights: Mapping[str, float]

    def share(self, name: str) -> float:
        """The share of all examples that come from a source."""
        return self.weights[name] / sum(self.weights.values())


def open_mixture(part: DataPart) -> Mixture:
    """The sources of examples that a recipe names; `RecipeError` if one is empty."""
    sources = part.sources
    return Mixture(
        {name: open_source(each, part.sequence) for name, each in sources.items()},
        {name: each.weight for name, each in sources.items()},
    )


def open_source(part: SourcePart, sequence: int) -> Examples:
    """A source of examples that a recipe names; `RecipeError` if it is empty."""
    if part.source:
        _, source = call_named(part.source, part.options, "data", _WANTED)
        if not isinstance(source, Examples):
            raise RecipeError(f"{part.source} returned {source!r:.60}; {_WANTED}")
    elif part.tokens:
        source = _open_tokens(Path(part.tokens), sequence)
    else:
        source = Windows(_read_text(part.text), sequence)
    if not len(source):
        raise RecipeError(
            "[data] has no example: the text is shorter than sequence + 1 tokens"
            if not part.source
            else f"{part.source} returned a sequence of length 0"
        )
    return source


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Examples that are consecutive windows of `sequence` tokens of one long row.

    A window's last target is the next window's first input.
    """

    tokens: Any
    sequence: int

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.sequence)

    def __getitem__(self, index: int) -> dict[str, Any]:
        start = index * self.sequence
        return as_example(self.tokens[start : start + self.sequence + 1])


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Examples from an .array_record file: the first tokens (int32) of each record."""

    reader: Sequence[bytes]
    sequence: int

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = np.frombuffer(self.reader[index], np.int32)
        if len(tokens) <= self.sequence:
            raise RecipeError(
                f"record {index} has {len(tokens)} tokens; wanted sequence + 1 = "
                f"{self.sequence + 1} or more, int32"
            )
        return as_example(tokens[: self.sequence + 1])


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A contiguous part of a source: `length` examples from example `start` on."""

    source: Examples
    start: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.source[self.start + index]


def split_held_out(whole: Mixture, held_out: float) -> tuple[Mixture, Mixture]:
    """The examples to train on, and the examples for evaluation.

    held_out: share of each source's examples for evaluation, which are the last ones.
    """
    parts = {name: _split(each, held_out) for name, each in whole.parts.items()}
    kept = {name: each[0] for name, each in parts.items()}
    held = {name: each[1] for name, each in parts.items()}
    return Mixture(kept, whole.weights), Mixture(held, whole.weights)


def _split(source: Examples, held_out: float) -> tuple[Examples, Examples]:
    count = round(len(source) * held_out)
    if held_out and not 0 < count < len(source):
        raise RecipeError(
            f"data.held_out = {held_out} of {len(source)} examples leaves none to train "
            "or to evaluate"
        )
    kept = len(source) - count
    return Part(source, 0, kept), Part(source, kept, count)


def as_example(tokens: Any) -> dict[str, Any]:
    """An example from n + 1 tokens: n inputs, and n targets shifted by one, int32."""
    row = np.asarray(tokens).astype(np.int32)
    return {"inputs": row[:-1], "targets": row[1:]}


def _read_text(patterns: Sequence[str]) -> Any:
    """The bytes of all files as one uint8 array.

    Patterns are taken in order, and the files of a pattern by name.
    """
    files: list[Path] = []
    for pattern in patterns:
        named = glob(pattern, recursive=True) if has_magic(pattern) else [pattern]
        found = [Path(name) for name in sorted(named) if Path(name).is_file()]
        if not found:
            raise RecipeError(f"data.text: there is no file {pattern}")
        files += found
    return np.concatenate([np.frombuffer(f.read_bytes(), np.uint8) for f in files])


def _open_tokens(path: Path, sequence: int) -> Examples:
    if not path.is_file():
        raise RecipeError(f"data.tokens: there is no file {path}")
    if path.suffix == ".npy":
        tokens = np.load(path, mmap_mode="r")
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise RecipeError(
                f"{path} has {tokens.dtype}{list(tokens.shape)}; wanted one row of whole "
                "numbers"
            )
        return Windows(tokens, sequence)
    if path.suffix in (".array_record", ".arrayrecord"):
        grain = import_module("grain")
        return Records(grain.sources.ArrayRecordDataSource(str(path)), sequence)
    raise RecipeError(f"{path} ends in {path.suffix!r}; wanted .npy or .array_record")
