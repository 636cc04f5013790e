"""The parts of a space: `Choice`, `Range`, `Repeat`, and `Space` itself, which nest.

A part stands for a set of plain values, as JSON has them. It codes each of its values as
a fixed number of genes; genes that a value does not use are 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from meshwright.errors import SearchError, did_you_mean

type Candidate = dict[str, Any]
"""A member of a space: a plain dict, with one entry per name of the space."""

type Condition = Callable[[Any], bool]
"""A function from a candidate to whether it is allowed."""

type GeneKind = Literal["choice", "grid", "real", "log"]
"""What the values of a gene are.

"choice": the number of an option. "grid": the number of a level, where near numbers mean
near values. "real", "log": a value itself, whose differences or ratios count.
"""


@dataclass(frozen=True, slots=True)
class Gene:
    """One number of the code of a candidate, from `low` to `high`.

    name: path of the part that it codes, such as `blocks[1].kernel`.
    """

    name: str
    kind: GeneKind
    low: float
    high: float

    @property
    def num_levels(self) -> float:
        """The number of values; infinite for a real number."""
        whole = self.kind in ("choice", "grid")
        return self.high - self.low + 1 if whole else math.inf


@dataclass(frozen=True, slots=True, init=False)
class Choice:
    """One of several options: plain values, or parts that are chosen within.

    Numbers in rising order count as levels, where neighbours are alike.
    """

    options: tuple[Any, ...]
    starts: tuple[int, ...]

    def __init__(self, *options: Any) -> None:
        if not options:
            raise SearchError("a Choice() has no options; name at least one value")
        for index, option in enumerate(options):
            check_part(option, "an option of a Choice")
            if any(_same(option, other) for other in options[:index]):
                raise SearchError(f"a Choice has the option {option!r:.60} twice")
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "starts", _starts(options, 1))

    @property
    def num_genes(self) -> int:
        return self.starts[-1]

    def genes(self, name: str) -> Iterator[Gene]:
        numbers = [o for o in self.options if type(o) in (int, float)]
        rising = len(numbers) == len(self.options) > 2 and numbers == sorted(numbers)
        yield Gene(name, "grid" if rising else "choice", 0, len(self.options) - 1)
        for number, option in enumerate(self.options):
            yield from genes_of(option, f"{name}<{number}>")

    def decode(self, code: Sequence[float], at: int, used: list[int]) -> Any:
        used.append(at)
        number = int(code[at])
        return decode(self.options[number], code, at + self.starts[number], used)

    @property
    def num_values(self) -> float:
        return sum(map(num_values, self.options))

    def values(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(map(values_of, self.options))

    def encode(self, value: Any, name: str) -> list[float]:
        for number, option in enumerate(self.options):
            try:
                inner = encode(option, value, name)
            except SearchError:
                continue
            before = [0.0] * (self.starts[number] - 1)
            after = [0.0] * (self.num_genes - self.starts[number] - len(inner))
            return [float(number), *before, *inner, *after]
        options = ", ".join(map(_short, self.options))
        raise SearchError(f"{name} is {value!r:.60}; wanted one of {options}")

    def inner(self, value: Any, name: str) -> Iterator[tuple[Space, Any]]:
        for option in self.options:
            if is_part(option) and _fits(option, value, name):
                yield from spaces_of(option, value, name)
                return

    def plain(self) -> Any:
        return {"choice": [plain_part(option) for option in self.options]}


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included.

    Whole numbers rise by `step`, which is 1 by default. Of other numbers all are
    possible, unless there is a step.
    log: whether ratios count, not differences; only for numbers without a step.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        ends = (self.low, self.high, 1 if self.step is None else self.step)
        if not all(type(n) in (int, float) and math.isfinite(n) for n in ends):
            raise SearchError(f"{self}: wanted finite numbers")
        if not self.low <= self.high or ends[2] <= 0:
            raise SearchError(f"{self}: wanted low <= high, and a step above 0")
        if self.log and (self.num_steps is not None or self.low <= 0):
            raise SearchError(
                f"{self}: log is for real numbers above 0, without a step"
            )

    @property
    def num_steps(self) -> int | None:
        """The number of steps from the lowest to the highest value; `None` if real."""
        if self.step is None and not (type(self.low) is type(self.high) is int):
            return None
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9)

    @property
    def num_genes(self) -> int:
        return 1

    def genes(self, name: str) -> Iterator[Gene]:
        if (steps := self.num_steps) is not None:
            yield Gene(name, "grid", 0, steps)
        else:
            yield Gene(name, "log" if self.log else "real", self.low, self.high)

    def decode(self, code: Sequence[float], at: int, used: list[int]) -> float:
        used.append(at)
        if self.num_steps is None:
            return float(code[at])
        return self.low + int(code[at]) * (self.step or 1)

    @property
    def num_values(self) -> float:
        return math.inf if self.num_steps is None else self.num_steps + 1

    def values(self) -> Iterator[float]:
        return (self.decode([step], 0, []) for step in range((self.num_steps or 0) + 1))

    def encode(self, value: Any, name: str) -> list[float]:
        if type(value) in (int, float) and self.low <= value <= self.high:
            if self.num_steps is None:
                return [float(value)]
            step = round((value - self.low) / (self.step or 1))
            if self.decode([step], 0, []) == value:
                return [float(step)]
        raise SearchError(f"{name} is {value!r:.60}; wanted a number of {self}")

    def inner(self, value: Any, name: str) -> Iterator[tuple[Space, Any]]:
        return iter(())

    def plain(self) -> Any:
        return {"range": [self.low, self.high, self.step, self.log]}


@dataclass(frozen=True, slots=True)
class Repeat:
    """A list of `low` to `high` values of one part, each chosen on its own."""

    part: Any
    low: int
    high: int

    def __post_init__(self) -> None:
        check_part(self.part, "the part of a Repeat")
        if not (
            type(self.low) is type(self.high) is int and 0 <= self.low <= self.high
        ):
            raise SearchError(
                f"Repeat from {self.low} to {self.high}: wanted 0 or more"
            )
        if self.high == 0:
            raise SearchError("a Repeat of at most 0 values chooses nothing")

    @property
    def num_genes(self) -> int:
        return 1 + self.high * num_genes(self.part)

    def genes(self, name: str) -> Iterator[Gene]:
        yield Gene(f"len({name})", "grid", 0, self.high - self.low)
        for number in range(self.high):
            yield from genes_of(self.part, f"{name}[{number}]")

    def decode(self, code: Sequence[float], at: int, used: list[int]) -> list[Any]:
        used.append(at)
        length, width = self.low + int(code[at]), num_genes(self.part)
        places = (at + 1 + number * width for number in range(length))
        return [decode(self.part, code, place, used) for place in places]

    @property
    def num_values(self) -> float:
        lengths = range(self.low, self.high + 1)
        return sum(num_values(self.part) ** length for length in lengths)

    def values(self) -> Iterator[list[Any]]:
        for length in range(self.low, self.high + 1):
            inner = itertools.product(*[list(values_of(self.part))] * length)
            yield from map(list, inner)

    def encode(self, value: Any, name: str) -> list[float]:
        if not isinstance(value, list) or not self.low <= len(value) <= self.high:
            wanted = f"a list of {self.low} to {self.high} values"
            raise SearchError(f"{name} is {value!r:.60}; wanted {wanted}")
        code = [float(len(value) - self.low)]
        for number, each in enumerate(value):
            code += encode(self.part, each, f"{name}[{number}]")
        return code + [0.0] * (self.num_genes - len(code))

    def inner(self, value: Any, name: str) -> Iterator[tuple[Space, Any]]:
        for number, each in enumerate(value):
            yield from spaces_of(self.part, each, f"{name}[{number}]")

    def plain(self) -> Any:
        return {"repeat": [plain_part(self.part), self.low, self.high]}


@dataclass(frozen=True, slots=True)
class Space:
    """Dicts with one entry per name, whose values the parts give.

    where: a function from a candidate to whether it is allowed, or several. In a nested
        space it gets the nested dict.

    >>> space = Space({"kernel": Choice(3, 5), "widths": Repeat(Range(8, 32, 8), 1, 2)})
    >>> space.decode(space.encode({"kernel": 5, "widths": [16]}))
    {'kernel': 5, 'widths': [16]}
    """

    parts: Mapping[str, Any]
    where: Condition | Sequence[Condition] = ()
    num_genes: int = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.parts, Mapping) or not self.parts:
            raise SearchError(f"a Space of {self.parts!r:.60}; wanted a dict of parts")
        for name, part in self.parts.items():
            if not isinstance(name, str):
                raise SearchError(f"a Space has the name {name!r}; wanted a text")
            check_part(part, f"{name} of a Space")
        if not all(map(callable, self.conditions)):
            raise SearchError(
                f"where is {self.where!r:.60}; wanted a function, or several"
            )
        object.__setattr__(self, "num_genes", sum(map(num_genes, self.parts.values())))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(self.where) if isinstance(self.where, Sequence) else (self.where,)

    def genes(self, name: str = "") -> Iterator[Gene]:
        for entry, part in self.parts.items():
            yield from genes_of(part, f"{name}.{entry}" if name else entry)

    def decode(
        self, code: Sequence[float], at: int = 0, used: list[int] | None = None
    ) -> Candidate:
        """The candidate of a code; `used` gets the genes that the candidate uses."""
        used, candidate = [] if used is None else used, dict[str, Any]()
        for name, part in self.parts.items():
            candidate[name] = decode(part, code, at, used)
            at += num_genes(part)
        return candidate

    @property
    def num_values(self) -> float:
        """The number of candidates without conditions; infinite with real numbers."""
        return math.prod(map(num_values, self.parts.values()))

    def values(self) -> Iterator[Candidate]:
        """Every candidate that the conditions allow, if none of the parts is real."""
        for values in itertools.product(*map(values_of, self.parts.values())):
            candidate = dict(zip(self.parts, values, strict=True))
            if not self.broken(candidate):
                yield candidate

    def encode(self, value: Any, name: str = "") -> list[float]:
        """The code of a candidate; `SearchError` if it is not in the space."""
        if not isinstance(value, dict):
            raise SearchError(f"{name or 'it'} is {value!r:.60}; wanted a dict")
        for given in value:
            if given not in self.parts:
                hint = did_you_mean(given, self.parts)
                raise SearchError(
                    f"{name or 'it'} has an unknown entry {given!r}{hint}"
                )
        code: list[float] = []
        for entry, part in self.parts.items():
            if entry not in value:
                raise SearchError(f"{name or 'it'} lacks the entry {entry!r}")
            code += encode(part, value[entry], f"{name}.{entry}" if name else entry)
        return code

    def inner(self, value: Any, name: str) -> Iterator[tuple[Space, Any]]:
        yield self, value
        for entry, part in self.parts.items():
            yield from spaces_of(part, value[entry], entry)

    def broken(self, candidate: Candidate) -> str:
        """The name of the first condition that a candidate breaks; "" if it is allowed."""
        for space, value in self.inner(candidate, ""):
            for number, condition in enumerate(space.conditions):
                if not _holds(condition, value):
                    return _name_of(condition, number)
        return ""

    def plain(self) -> Any:
        """The space as plain data; conditions are left out."""
        return {name: plain_part(part) for name, part in self.parts.items()}


type Part = Choice | Range | Repeat | Space

_PARTS = (Choice, Range, Repeat, Space)


def is_part(part: Any) -> bool:
    """Whether something is a part with genes, and no plain value."""
    return isinstance(part, _PARTS)


def check_part(part: Any, what: str) -> None:
    """Fail unless something is a part, or a plain value as JSON has them."""
    if is_part(part) or part is None or isinstance(part, str | bool | int | float):
        return
    if isinstance(part, list):
        for each in part:
            check_part(each, what)
        return
    wanted = "a number, text, true, false, None, a list of them, or a part of a space"
    raise SearchError(f"{what} is {part!r:.60}; wanted {wanted}")


def num_genes(part: Any) -> int:
    return part.num_genes if is_part(part) else 0


def num_values(part: Any) -> float:
    return part.num_values if is_part(part) else 1


def values_of(part: Any) -> Iterator[Any]:
    return part.values() if is_part(part) else iter((part,))


def genes_of(part: Any, name: str) -> Iterator[Gene]:
    return part.genes(name) if is_part(part) else iter(())


def decode(part: Any, code: Sequence[float], at: int, used: list[int]) -> Any:
    return part.decode(code, at, used) if is_part(part) else part


def encode(part: Any, value: Any, name: str) -> list[float]:
    if is_part(part):
        return part.encode(value, name)
    if _same(part, value):
        return []
    raise SearchError(f"{name} is {value!r:.60}; wanted {part!r:.60}")


def spaces_of(part: Any, value: Any, name: str) -> Iterator[tuple[Space, Any]]:
    """The spaces within a part, each with the part of the candidate that it gave."""
    return part.inner(value, name) if is_part(part) else iter(())


def plain_part(part: Any) -> Any:
    return part.plain() if is_part(part) else {"value": part}


def _starts(parts: Sequence[Any], first: int) -> tuple[int, ...]:
    """Offsets of the genes of each part, and the end of the last."""
    starts = [first]
    for part in parts:
        starts.append(starts[-1] + num_genes(part))
    return tuple(starts)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _fits(part: Any, value: Any, name: str) -> bool:
    try:
        part.encode(value, name)
    except SearchError:
        return False
    return True


def _short(option: Any) -> str:
    return f"a {type(option).__name__}" if is_part(option) else repr(option)


def _holds(condition: Condition, value: Any) -> bool:
    try:
        return bool(condition(value))
    except Exception as fault:
        what = f"a condition of the space failed for {value!r:.200}"
        raise SearchError(f"{what}: {type(fault).__name__}: {fault}") from fault


def _name_of(condition: Condition, number: int) -> str:
    """The name of a condition, with the line of its code if it has one."""
    name = getattr(condition, "__name__", f"where {number}")
    code = getattr(condition, "__code__", None)
    return name if code is None else f"{name} (line {code.co_firstlineno})"
