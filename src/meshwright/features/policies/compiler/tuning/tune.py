"""Tuning of a corpus: a replay file for each unit, and a journal of results."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit
from meshwright.features.policies.compiler.replay import (
    Decisions,
    read_replay,
    write_replay,
)
from meshwright.features.policies.compiler.tuning.call_graph import (
    CallGraph,
    parse_call_graph,
)
from meshwright.features.policies.compiler.tuning.search import (
    InliningSearch,
    Sized,
    Tuned,
)
from meshwright.plain import JsonLines


@dataclass(frozen=True, slots=True)
class TunedUnit:
    """The result for one unit of a corpus, an entry of the journal.

    fingerprint: of the source, its flags and the compiler. is_optimal, is_complete: as
        in `Tuned`.
    """

    unit: str
    fingerprint: str
    default_bytes: int
    text_bytes: int
    compilations: int
    is_optimal: bool
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Job:
    """A unit, its IR (or the source, if IR compiles otherwise), and its calls."""

    unit: Unit
    source: Path
    flags: tuple[str, ...]
    graph: CallGraph
    weight: int


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

    show: called with each result as it comes.
    """
    end_at = time.monotonic() + seconds
    out.mkdir(parents=True, exist_ok=True)
    advice = "give another folder, or remove this one"
    journal = JsonLines(out / "journal.jsonl", PolicyError, "entry of a tuning", advice)
    known = {entry.unit: entry for entry in _entries(journal)}
    with (
        tempfile.TemporaryDirectory(prefix="meshwright-tune-") as place,
        ThreadPoolExecutor(workers) as pool,
    ):
        prepared = pool.map(lambda unit: _job(compiler, unit, Path(place)), units)
        jobs = [
            job
            for job in sorted(prepared, key=lambda job: job.weight)
            if not _is_done(known.get(job.unit.name), _fingerprint(compiler, job.unit))
        ]
        for number, job in enumerate(jobs):
            if time.monotonic() >= end_at:
                break
            # Small units need less than their share and leave the rest to large ones.
            share = job.weight / sum(each.weight for each in jobs[number:])
            until = time.monotonic() + share * (end_at - time.monotonic())
            entry = _tuned(job, compiler, out, pool, (known.get(job.unit.name), until))
            journal.add(_plain(entry))
            known[entry.unit] = entry
            show(entry)
    return [known[unit.name] for unit in units if unit.name in known]


def _job(compiler: ClangCompiler, unit: Unit, folder: Path) -> _Job:
    """A unit with its IR, which compiles faster than its source does."""
    text = compiler.ir(unit.source, unit.compile_flags)
    graph = parse_call_graph(text)
    file = folder / f"{unit.name}.ll"
    file.write_text(text)
    flags = (*(flag for flag in unit.flags if flag.startswith(_CODE_FLAGS)), "-w")
    from_source = compiler.replay(unit.source, unit.compile_flags, {})
    weight = 1 + len(graph.sites(from_source.inlined))
    if compiler.replay(file, flags, {}).text_bytes == from_source.text_bytes:
        return _Job(unit, file, flags, graph, weight)
    return _Job(unit, unit.source, unit.compile_flags, graph, weight)


_CODE_FLAGS = ("-O", "-m", "-f")
"""Flags that the optimiser and the code generator read."""


def _tuned(
    job: _Job,
    compiler: ClangCompiler,
    out: Path,
    pool: ThreadPoolExecutor,
    earlier: tuple[TunedUnit | None, float],
) -> TunedUnit:
    """Search for one unit's decisions, and write them."""
    entry, until = earlier
    fingerprint = _fingerprint(compiler, job.unit)
    path = out / f"{job.unit.name}.replay"

    def size(decisions: Decisions, fallback: str) -> Sized:
        compiled = compiler.replay(job.source, job.flags, decisions, fallback)
        return Sized(compiled.text_bytes, compiled.inlined)

    start = entry is not None and entry.fingerprint == fingerprint and path.exists()
    search = InliningSearch(job.graph, size, pool, until)
    tuned = search.run(read_replay(path) if start else {})
    tuned = _checked(tuned, job, compiler)
    if tuned.decisions:
        write_replay(path, tuned.decisions)
    else:
        path.unlink(missing_ok=True)
    return TunedUnit(
        job.unit.name,
        fingerprint,
        tuned.default_bytes,
        tuned.text_bytes,
        tuned.compilations,
        tuned.is_optimal,
        tuned.is_complete,
    )


def _checked(tuned: Tuned, job: _Job, compiler: ClangCompiler) -> Tuned:
    """The result, if the unit's source has the same size with these decisions."""
    flags = job.unit.compile_flags
    real = compiler.replay(job.unit.source, flags, tuned.decisions).text_bytes
    if real == tuned.text_bytes:
        return tuned
    best = min(real, tuned.default_bytes)
    kept = tuned.decisions if real < tuned.default_bytes else {}
    return Tuned(kept, tuned.default_bytes, best, tuned.compilations, False, True)


def _fingerprint(compiler: ClangCompiler, unit: Unit) -> str:
    content = unit.source.read_bytes() + repr((unit.flags, compiler.clang)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _is_done(entry: TunedUnit | None, fingerprint: str) -> bool:
    return entry is not None and entry.fingerprint == fingerprint and entry.is_complete


def _entries(journal: JsonLines) -> list[TunedUnit]:
    if not journal.path.exists():
        return []
    return journal.read(lambda entry: TunedUnit(**entry))


def _plain(entry: TunedUnit) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in TunedUnit.__slots__}
