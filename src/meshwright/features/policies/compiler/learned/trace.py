"""Inlining decisions of one compilation, with their features and places."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.features.policies.compiler.channel import Advise
from meshwright.features.policies.compiler.compiler import ClangCompiler, ClangObject
from meshwright.features.policies.compiler.corpus import Unit
from meshwright.features.policies.compiler.savings import CallPlace

_PLACE = re.compile(r"Line: (\d+),\s+Column: (\d+)")
_FUNCTION = re.compile(r"^Function: +'?(.+?)'?$", re.MULTILINE)
_CALLEE = re.compile(r"^  - Callee: +'?(.+?)'?$", re.MULTILINE)
_FEATURE = re.compile(r"^  - (\w+): +'(-?\d+)'$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One decision of a compilation: its place, its features, and what was decided."""

    place: CallPlace
    features: Mapping[str, int]
    is_inlined: bool


def trace_inlining(
    compiler: ClangCompiler, unit: Unit, advise: Advise
) -> tuple[ClangObject, list[TracedCall]]:
    """Compile a unit with a policy: the object, and its decisions in their order."""
    with tempfile.TemporaryDirectory(prefix="meshwright-trace-") as place:
        record = Path(place, "record.yaml")
        options = (
            "-g1",
            "-fsave-optimization-record=yaml",
            f"-foptimization-record-file={record}",
            "-foptimization-record-passes=inline-ml",
        )
        flags = (*unit.compile_flags, *options)
        made = compiler.compile(unit.source, flags, inline=advise)
        text = record.read_text() if record.exists() and not made.fault else ""
    return made, parse_record(text)


def parse_record(text: str) -> list[TracedCall]:
    """The decisions in an optimisation record, as LLVM's YAML has them."""
    calls: list[TracedCall] = []
    for remark in text.split("\n...\n"):
        function, callee = _FUNCTION.search(remark), _CALLEE.search(remark)
        if function is None or callee is None:
            continue
        place = _PLACE.search(remark.split("\nFunction:")[0])
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        calls.append(
            TracedCall(
                CallPlace(function[1], callee[1], line, column),
                {name: int(value) for name, value in _FEATURE.findall(remark)},
                "ShouldInline:    'true'" in remark,
            )
        )
    return calls
