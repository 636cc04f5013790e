"""Units whose register allocation is measured again and again, and their spill code."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Advise, Observation
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, fingerprint

_FROM_IR = ("-w", "-x", "ir", "-Xclang", "-disable-llvm-passes")


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """The optimised IR of a unit.

    default: cycles of spill code by function, with the compiler's own decisions.
    asked: functions for which a policy would be asked.
    """

    name: str
    project: str
    code: Path
    flags: tuple[str, ...]
    default: Mapping[str, float]
    asked: frozenset[str]

    def cycles(
        self, compiler: ClangCompiler, kind: str, policy: Advise
    ) -> dict[str, float]:
        """Cycles of spill code with a policy, of each function that asks."""
        made = compiler.compile(
            self.code, self.flags, measure_spills=True, **{kind: policy}
        )
        if made.fault:
            raise PolicyError(f"{self.name} was not compiled: {made.fault}")
        return {name: made.spill_cycles.get(name, 0.0) for name in self.asked}


def measured_unit(
    compiler: ClangCompiler, unit: Unit, kind: str, heuristic: Advise, folder: Path
) -> MeasuredUnit:
    """A unit ready to be measured; its IR and its default are kept in a folder.

    heuristic: any policy, which tells by its questions which functions ask.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"{unit.name}-{fingerprint(unit, compiler.clang)}"
    code, known = Path(f"{base}.bc"), Path(f"{base}.{kind}.json")
    flags = (*unit.flags, *_FROM_IR)
    if not known.exists():
        _write(code, compiler.bitcode(unit.source, unit.compile_flags))
        default = compiler.compile(code, flags, measure_spills=True).spill_cycles
        asked: set[str] = set()

        def note(call: Observation) -> float | None:
            asked.add(call.context)
            return heuristic(call)

        made = compiler.compile(code, flags, measure_spills=False, **{kind: note})
        if made.fault:
            raise PolicyError(f"{unit.name} gave no decisions: {made.fault}")
        text = json.dumps({"default": default, "asked": sorted(asked)})
        _write(known, text.encode())
    entry = json.loads(known.read_text())
    asked_names = frozenset(entry["asked"])
    return MeasuredUnit(
        unit.name, unit.project, code, flags, entry["default"], asked_names
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file all at once."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)
