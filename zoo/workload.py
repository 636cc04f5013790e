"""The interface of a program of the zoo: sizes, schedules, figures.

Every module of a model ends with `workload = Workload(...)`; `zoo.catalogue` lists them,
and tests, benchmarks, `meshwright zoo` and the tables in `zoo/README.md` walk the list.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import jax

from meshwright.partitioner.tactics import Tactic

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Target = Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]
"""Called without arguments, it returns a function and its arguments."""

Curve = Iterator[Mapping[str, float]]
"""What a training run tells, step by step: "loss" first, then what else is measured."""


@dataclass(frozen=True, slots=True)
class Published:
    """A number that a paper prints, and how ours is counted.

    quantity: "parameters" or "MACs".
    within: the relative difference that is still the same model.
    count: our number, from the program itself.
    source: where the number stands.
    """

    model: str
    quantity: str
    value: float
    count: Callable[[], float]
    source: str
    within: float = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """One program of the zoo.

    name: that of its module.
    paper: authors, title, venue, year.
    tiny: a target with arrays, small enough to train and to check on two cores.
    full: targets of the published sizes, with shapes only.
    train: (seed, steps) -> what each step measured; `metric` falls if all is well.
    steps: of the run whose figures are committed; under a minute on two cores.
    schedules: the best-known ways to cut it, by name.
    best: the one of them that fits `mesh`.
    batch: patterns of the inputs that data parallelism cuts on dim 0.
    mesh: eight devices for `best`; data parallelism and fsdp take its first axis.
    published: numbers of the paper against ours.
    """

    name: str
    title: str
    paper: str
    tiny: Target
    full: tuple[Target, ...]
    train: Callable[[int, int], Curve]
    steps: int
    schedules: Mapping[str, list[Tactic]]
    best: str
    batch: tuple[str, ...] = ("batch.**",)
    metric: str = "loss"
    mesh: Mapping[str, int] = field(default_factory=lambda: {"data": 4, "model": 2})
    published: tuple[Published, ...] = ()

    def __post_init__(self) -> None:
        if self.best not in self.schedules:
            raise ValueError(
                f"{self.name}: best schedule {self.best!r} is none of "
                f"{', '.join(self.schedules)}"
            )


def num_parameters(params: object) -> int:
    """Numbers in a pytree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def published_parameters(
    model: str, value: float, target: Target, source: str, within: float = 0.02
) -> Published:
    """A published count, compared with the parameters of a target's train step."""

    def count() -> float:
        return num_parameters(target()[1][0].params)

    return Published(model, "parameters", value, count, source, within)


def check_numbers(
    config: "DataclassInstance",
    may_be_zero: tuple[str, ...] = (),
    may_be_negative: tuple[str, ...] = (),
) -> None:
    """`ValueError` for the first invalid number of a configuration.

    Whole numbers, those within tuples as well, are at least 1, and fields named by
    `may_be_zero` at least 0. Fields that are declared as `float` are finite and at least
    0, those named by `may_be_negative` only finite.
    """
    for entry in fields(config):
        value = getattr(config, entry.name)
        if entry.type is float:
            _check_real(entry.name, value, entry.name in may_be_negative)
            continue
        least = 0 if entry.name in may_be_zero else 1
        for number in _whole_numbers(value):
            if number < least:
                raise ValueError(f"{entry.name} is at least {least}, not {number}")


def _check_real(name: str, value: float, may_be_negative: bool) -> None:
    if not isfinite(value):
        raise ValueError(f"{name} is a finite number, not {value}")
    if value < 0 and not may_be_negative:
        raise ValueError(f"{name} is at least 0, not {value}")


def _whole_numbers(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for part in value:
            yield from _whole_numbers(part)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def choose[T](name: str, sizes: Mapping[str, T], what: str) -> T:
    """The entry of `sizes` called `name`; `ValueError` with what there is, if none."""
    if name not in sizes:
        raise ValueError(f"there is no {what} {name!r}; there are {', '.join(sizes)}")
    return sizes[name]


def sized[C: DataclassInstance](
    make: Callable[[C], tuple[Any, tuple[Any, ...]]], sizes: Mapping[str, C]
) -> dict[str, Target]:
    """One target per entry of `sizes`: a module's `targets`, addressed by their names.

    A target takes changes of its configuration: `targets["b_16"](batch=64)`.
    """

    def target(name: str, config: C) -> Target:
        def build(**changes: Any) -> tuple[Any, tuple[Any, ...]]:
            return make(replace(config, **changes) if changes else config)

        build.__name__ = build.__qualname__ = name
        return build

    return {name: target(name, config) for name, config in sizes.items()}
