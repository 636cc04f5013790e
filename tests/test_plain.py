"""Plain data becomes checked records, and errors name the entry and what is allowed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from meshwright.errors import PlanError
from meshwright.plain import Frame, JsonLines, plain


class Kind(Enum):
    TORUS = "torus"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    name: str
    kind: Kind
    pair: tuple[int, int]
    points: tuple[Point, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    note: str | None = None
    cost: float | str = 0.0
    tags: frozenset[str] = frozenset()
    fn: Callable[..., Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise PlanError("a link has a name")


FRAME = Frame(PlanError, "this is no link", {"format": 1}, ("length",), indent=1)
LINK = Link(
    "ici", Kind.TORUS, (1, 2), (Point(1, 2),), {"f": 1.5}, "n", "x", frozenset("ba")
)


@pytest.mark.parametrize("positional", [(), (Point,)])
def test_what_is_written_is_read_back(positional):
    frame = Frame(PlanError, "this is no link", {"format": 1}, positional=positional)
    text = frame.write(LINK)
    assert frame.read(Link, text) == LINK
    assert json.loads(text)["points"] == plain(LINK, positional)["points"]


def test_figures_for_readers_and_functions_are_not_read():
    text = FRAME.write(Link("a", Kind.SWITCH, (1, 2), fn=print), length=3)
    assert json.loads(text)["length"] == 3
    assert FRAME.read(Link, text) == Link("a", Kind.SWITCH, (1, 2))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nam": 1}, "unknown entry nam; did you mean 'name'"),
        ({"qq": 1}, "unknown entry qq; wanted one of name, kind, pair"),
        ({"points": [{"y": 1}]}, r"\[points\[0\]\] lacks x"),
        ({"points": [{"x": "a"}]}, r"points\[0\].x is 'a'; wanted a number"),
        ({"points": [{"x": True}]}, r"points\[0\].x is True; wanted a number"),
        ({"points": 3}, "points is 3; wanted a list, each item an object"),
        ({"kind": "ring"}, "kind is 'ring'; wanted torus, switch"),
        ({"pair": [1]}, r"pair is \[1\]; wanted a list of 2"),
        ({"pair": [1, 2.5]}, r"pair\[1\] is 2.5; wanted a whole number"),
        ({"rates": {"a": None}}, "rates.a is None; wanted a number"),
        ({"note": 3}, "note is 3; wanted a text in quotes"),
        ({"name": ""}, "^a link has a name$"),
        ({"format": 2}, "format is 2; wanted 1: make it again with this version"),
    ],
)
def test_an_entry_that_is_wrong_is_named(changed, words):
    text = json.dumps({**json.loads(FRAME.write(LINK)), **changed})
    with pytest.raises(PlanError, match=words):
        FRAME.read(Link, text)


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000])
def test_text_that_is_no_record_is_refused(text):
    with pytest.raises(PlanError, match="this is no link: it is"):
        FRAME.read(Link, text)


def test_lines_go_on_after_an_incomplete_one(tmp_path):
    lines = JsonLines(tmp_path / "a.jsonl", PlanError, "number", "delete it")
    lines.add(1)
    with lines.path.open("a") as file:
        file.write("2")
    assert lines.read(int) == [1]
    lines.add(3)
    assert lines.read(int) == [1, 3]
    lines.add("x")
    with pytest.raises(PlanError, match=r"line 3 of .* is no number .*; delete it"):
        lines.read(int)
