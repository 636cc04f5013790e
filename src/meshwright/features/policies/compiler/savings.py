"""What inlining one call saves in bytes, measured while a unit was tuned."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import PolicyError


@dataclass(frozen=True, slots=True, order=True)
class CallPlace:
    """A call as remarks of a compiler name it.

    caller: the symbol of the function whose code has the call, perhaps by inlining.
    line, column: where the call is written.
    """

    caller: str
    callee: str
    line: int
    column: int


def write_savings(path: Path, savings: Iterable[tuple[CallPlace, int]]) -> None:
    """Write the bytes that inlining saves, a line for each call, sorted."""
    lines = [
        json.dumps([saved, place.caller, place.callee, place.line, place.column])
        for place, saved in sorted(savings)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))


def read_savings(path: Path) -> Mapping[CallPlace, int]:
    """The bytes of a file that `write_savings` wrote, by call.

    Calls with the same place but other bytes, such as copies of one call in a function
    that was inlined twice, are left out.
    """
    found: defaultdict[CallPlace, set[int]] = defaultdict(set)
    try:
        for line in path.read_text().splitlines():
            saved, caller, callee, row, column = json.loads(line)
            found[CallPlace(caller, callee, row, column)].add(saved)
    except (ValueError, TypeError) as fault:
        raise PolicyError(
            f"{path} has no savings of inlined calls ({fault}); remove it, and run"
            " `meshwright policies tune` again"
        ) from None
    return {place: min(each) for place, each in found.items() if len(each) == 1}
