"""Units whose register allocation is measured again and again, and what it costs."""

import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Advise, Observation
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, fingerprint
from meshwright.features.policies.compiler.registers.costs import FunctionCost

_FROM_IR = ("-w", "-x", "ir", "-Xclang", "-disable-llvm-passes")


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """The optimised IR of a unit.

    default: costs by function, with the compiler's own decisions. asked: those for which a
        policy would be asked.
    """

    name: str
    project: str
    code: Path
    flags: tuple[str, ...]
    default: Mapping[str, FunctionCost]
    asked: frozenset[str]

    def costs(
        self, compiler: ClangCompiler, kind: str, policy: Advise
    ) -> dict[str, FunctionCost]:
        """Costs with a policy, of each function that asks."""
        found = compiler.register_costs(self.code, self.flags, **{kind: policy})
        return {name: found[name] for name in self.asked if name in found}


def measured_unit(
    compiler: ClangCompiler, unit: Unit, kind: str, heuristic: Advise, folder: Path
) -> MeasuredUnit:
    """A unit ready to be measured; its IR and its default are kept in a folder.

    heuristic: any policy, which tells by its questions which functions ask.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"{unit.name}-{fingerprint(unit, compiler.clang)}"
    code, known = Path(f"{base}.bc"), Path(f"{base}.{kind}-costs.json")
    flags = (*unit.flags, *_FROM_IR)
    if not known.exists():
        _write(code, compiler.bitcode(unit.source, unit.compile_flags))
        default = compiler.register_costs(code, flags)
        asked: set[str] = set()

        def note(call: Observation) -> float | None:
            asked.add(call.context)
            return heuristic(call)

        made = compiler.compile(code, flags, measure_spills=False, **{kind: note})
        if made.fault:
            raise PolicyError(f"{unit.name} gave no decisions: {made.fault}")
        measures = {name: astuple(each) for name, each in default.items()}
        known_names = sorted(asked & default.keys())
        text = json.dumps({"default": measures, "asked": known_names})
        _write(known, text.encode())
    entry = json.loads(known.read_text())
    costs = {name: FunctionCost(*each) for name, each in entry["default"].items()}
    asked_names = frozenset(entry["asked"])
    return MeasuredUnit(unit.name, unit.project, code, flags, costs, asked_names)


def _write(path: Path, content: bytes) -> None:
    """Write a file all at once."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)
