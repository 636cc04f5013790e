"""Tuning of a corpus: a replay file for each unit, and a journal of results."""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, fingerprint
from meshwright.features.policies.compiler.replay import read_replay, write_replay
from meshwright.features.policies.compiler.savings import write_savings
from meshwright.features.policies.compiler.tuning.prepared import (
    PreparedUnit,
    prepare_unit,
)
from meshwright.features.policies.compiler.tuning.search import Tuned
from meshwright.plain import JsonLines


@dataclass(frozen=True, slots=True)
class TunedUnit:
    """The result for one unit of a corpus, an entry of the journal.

    fingerprint: of the source, its flags and the compiler. is_optimal, is_complete,
        stages: as in `Tuned`. fault: why the unit was skipped; "" if it was not.
    """

    unit: str
    fingerprint: str
    default_bytes: int = 0
    text_bytes: int = 0
    compilations: int = 0
    is_optimal: bool = False
    is_complete: bool = False
    stages: int = 0
    fault: str = ""


def tune(
    units: Sequence[Unit],
    compiler: ClangCompiler,
    out: Path,
    *,
    seconds: float,
    workers: int = 2,
    show: Callable[[TunedUnit], None] = lambda unit: None,
) -> list[TunedUnit]:
    """Tune units within a time; go on where an earlier call with the same folder ended.

    A unit that does not compile is skipped, and its entry says why.
    show: called with each result as it comes.
    """
    end_at = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    advice = "give another folder, or remove this one"
    journal = JsonLines(out / "journal.jsonl", PolicyError, "entry of a tuning", advice)
    known = {entry.unit: entry for entry in _entries(journal)}

    def finish(entry: TunedUnit) -> None:
        journal.add(_plain(entry))
        known[entry.unit] = entry
        show(entry)

    left = [
        unit
        for unit in units
        if not _is_done(known.get(unit.name), fingerprint(unit, compiler.clang))
    ]
    with (
        tempfile.TemporaryDirectory(prefix="meshwright-tune-") as place,
        ThreadPoolExecutor(workers) as pool,
    ):
        jobs: list[PreparedUnit] = []
        for job in pool.map(lambda unit: _prepared(compiler, unit, Path(place)), left):
            if isinstance(job, TunedUnit):
                finish(job)
            else:
                jobs.append(job)
        jobs.sort(key=lambda job: job.weight)
        for number, job in enumerate(jobs):
            if time.monotonic() >= end_at:
                break
            # Small units need less than their share and leave the rest to large ones.
            share = job.weight / sum(each.weight for each in jobs[number:])
            until = time.monotonic() + share * (end_at - time.monotonic())
            finish(_entry(job, compiler, out, pool, (known.get(job.unit.name), until)))
    return [known[unit.name] for unit in units if unit.name in known]


def _prepared(
    compiler: ClangCompiler, unit: Unit, folder: Path
) -> PreparedUnit | TunedUnit:
    """What the search of a unit begins with, or the entry that says why it cannot."""
    try:
        return prepare_unit(compiler, unit, folder)
    except PolicyError as fault:
        return TunedUnit(unit.name, fingerprint(unit, compiler.clang), fault=str(fault))


def _entry(
    job: PreparedUnit,
    compiler: ClangCompiler,
    out: Path,
    pool: ThreadPoolExecutor,
    earlier: tuple[TunedUnit | None, float],
) -> TunedUnit:
    """Search for one unit's decisions, and write them."""
    entry, until = earlier
    unit, mark = job.unit, fingerprint(job.unit, compiler.clang)
    path = out / f"{unit.name}.replay"
    known = entry if entry is not None and entry.fingerprint == mark else None
    start = read_replay(path) if known is not None and path.exists() else {}
    try:
        search = job.search(compiler, pool, until)
        tuned = search.run(start, 0 if known is None else known.stages)
        tuned = _checked(tuned, unit, compiler)
    except PolicyError as fault:
        return TunedUnit(unit.name, mark, fault=str(fault))
    if tuned.decisions:
        write_replay(path, tuned.decisions)
    else:
        path.unlink(missing_ok=True)
    if tuned.saved_bytes:
        savings = tuned.saved_bytes.items()
        named = ((job.graph.place(site), saved) for site, saved in savings)
        write_savings(out / f"{unit.name}.savings", named)
    return TunedUnit(
        unit.name,
        mark,
        tuned.default_bytes,
        tuned.text_bytes,
        tuned.compilations,
        tuned.is_optimal,
        tuned.is_complete,
        tuned.stages,
    )


def _checked(tuned: Tuned, unit: Unit, compiler: ClangCompiler) -> Tuned:
    """The result, if the unit's source has the same size with these decisions."""
    if not tuned.decisions:
        return tuned
    flags = unit.compile_flags
    real = compiler.replay(unit.source, flags, tuned.decisions).text_bytes
    if real == tuned.text_bytes:
        return tuned
    best = min(real, tuned.default_bytes)
    kept = tuned.decisions if real < tuned.default_bytes else {}
    return replace(tuned, decisions=kept, text_bytes=best, is_optimal=False)


def _is_done(entry: TunedUnit | None, mark: str) -> bool:
    return entry is not None and entry.fingerprint == mark and entry.is_complete


def _entries(journal: JsonLines) -> list[TunedUnit]:
    if not journal.path.exists():
        return []
    return journal.read(lambda entry: TunedUnit(**entry))


def _plain(entry: TunedUnit) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in TunedUnit.__slots__}
