"""A corpus: units that compile by themselves, with the flags of their projects."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.clang import Clang
from meshwright.plain import Reader


@dataclass(frozen=True, slots=True)
class Unit:
    """One source file, its includes within it.

    name: its path in its project, as one word. language: "c" or "c++".
    """

    name: str
    project: str
    language: str
    flags: tuple[str, ...]
    source: Path

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """Flags that also name the language."""
        return (*self.flags, "-w", "-x", self.language)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    project: str
    language: str
    flags: tuple[str, ...]


def read_corpus(folder: Path) -> list[Unit]:
    """The units of a corpus in the order of their names."""
    entries = sorted((folder / "units").glob("*.json"))
    if not entries:
        raise PolicyError(
            f"{folder} has no units; make a corpus by `meshwright policies corpus`"
        )
    reader = Reader(lambda path, fault: PolicyError(f"{folder}: {path}: {fault}"))
    units: list[Unit] = []
    for file in entries:
        entry = reader.read(_Entry, json.loads(file.read_text()), file.name)
        source = file.with_suffix("")
        if not source.exists():
            raise PolicyError(f"{file} has no source beside it ({source.name})")
        units.append(
            Unit(entry.name, entry.project, entry.language, entry.flags, source)
        )
    return units


def one_of_each_file(units: Iterable[Unit]) -> list[Unit]:
    """The first unit of each file, without those of the same file with other flags."""
    found: dict[tuple[str, str], Unit] = {}
    for unit in units:
        found.setdefault((unit.project, unit.name.rsplit("@", 1)[0]), unit)
    return list(found.values())


def fingerprint(unit: Unit, clang: Clang) -> str:
    """A text that tells a unit's source, flags and compiler from others."""
    content = unit.source.read_bytes() + repr((unit.flags, clang)).encode()
    return hashlib.sha256(content).hexdigest()[:16]
