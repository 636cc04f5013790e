"""Replay files: inlining decisions as text, which a stock clang takes without any process.

A line is a remark in the form of `-Rpass=inline`. A call site is the chain of places
through which a call came to where it is: `function:line:column`, innermost first, with
lines relative to the function (LLVM: ReplayInlineAdvisor.h).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.features.policies.compiler.driving.remarks import inlined_lines

_LINE = re.compile(
    r"remark: '(.+)' (inlined|will not be inlined) into '.+' at callsite (.+);"
)


@dataclass(frozen=True, slots=True, order=True)
class CallSite:
    """A call: the symbol that is called, and the chain of places, innermost first."""

    callee: str
    places: tuple[str, ...]

    @property
    def caller(self) -> str:
        """The function whose code contains the call once its chain is inlined."""
        return self.places[-1].rsplit(":", 2)[0]

    def line(self, inlined: bool) -> str:
        """The line of a replay file with a decision about this call."""
        verb = "inlined" if inlined else "will not be inlined"
        return (
            f"remark: '{self.callee}' {verb} into '{self.caller}'"
            f" at callsite {' @ '.join(self.places)};"
        )


Decisions = Mapping[CallSite, bool]
"""Whether calls are inlined; the compiler decides about all others."""


def inlined_sites(remarks: str) -> frozenset[CallSite]:
    """The calls that a compilation with `-Rpass=inline` has inlined."""
    return frozenset(
        CallSite(callee, tuple(chain.split(" @ ")))
        for callee, chain in inlined_lines(remarks)
    )


def write_replay(path: Path, decisions: Decisions) -> None:
    """Write decisions in an order that depends on nothing else."""
    lines = (f"{site.line(decisions[site])}\n" for site in sorted(decisions))
    path.write_text("".join(lines))


def read_replay(path: Path) -> dict[CallSite, bool]:
    """The decisions of a file that `write_replay` wrote; other lines are ignored."""
    found = _LINE.finditer(path.read_text())
    return {
        CallSite(match[1], tuple(match[3].split(" @ "))): match[2] == "inlined"
        for match in found
    }
