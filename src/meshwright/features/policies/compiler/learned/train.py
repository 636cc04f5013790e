"""Training of an inlining policy: lessons, a fit, and sizes on projects left out."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, fingerprint
from meshwright.features.policies.compiler.learned.fitting import (
    TransferPoint,
    fit_policy,
)
from meshwright.features.policies.compiler.learned.inline_policy import InlinePolicy
from meshwright.features.policies.compiler.learned.lessons import (
    InliningLessons,
    default_lessons,
    policy_lessons,
    read_lessons,
)
from meshwright.features.policies.compiler.tuning.prepared import prepare_unit


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Options of a training.

    held_out: projects that teach nothing, and on which the policy is measured.
    decisions: a folder of `policies tune`, whose savings are taken where it has some.
    rounds: how often the policy's own decisions are measured, and teach as well.
    """

    held_out: frozenset[str]
    seconds: float
    decisions: Path | None = None
    rounds: int = 0
    workers: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ProjectSize:
    """Text bytes of a project that was held out, by clang and with the policy."""

    project: str
    units: int
    default_bytes: int
    policy_bytes: int
    worst_unit: float


@dataclass(frozen=True, slots=True)
class InlineTraining:
    """A policy, its learning curve, and its sizes; skipped: why units taught nothing."""

    policy: InlinePolicy
    curve: list[TransferPoint]
    sizes: list[ProjectSize]
    skipped: list[str]


@dataclass(slots=True)
class _Training:
    """State that the steps of one training share."""

    compiler: ClangCompiler
    out: Path
    plan: TrainingPlan
    pool: Executor
    end_at: float
    show: Callable[[str], None]
    skipped: list[str]

    def lessons(
        self, units: Sequence[Unit], number: int, policy: InlinePolicy | None
    ) -> list[tuple[str, InliningLessons]]:
        """Lessons by project of one round, from files where an earlier run made them."""
        found: list[tuple[str, InliningLessons]] = []
        folder = self.out / "lessons" / f"round-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for place, unit in enumerate(_by_turns(units)):
            mark = fingerprint(unit, self.compiler.clang)
            path = folder / f"{unit.name}-{mark}.npz"
            if not path.exists():
                if time.monotonic() >= self.end_at:
                    continue
                self.show(f"round {number}, unit {place + 1} of {len(units)}")
                lessons = self._measured(unit, policy)
                if lessons is None:
                    continue
                lessons.save(path)
            found.append((unit.project, read_lessons(path)))
        return found

    def _measured(
        self, unit: Unit, policy: InlinePolicy | None
    ) -> InliningLessons | None:
        """Lessons of a unit; `None` if it has none, and `skipped` says why."""
        compiler, pool, end_at = self.compiler, self.pool, self.end_at
        with tempfile.TemporaryDirectory(prefix="meshwright-train-") as folder:
            try:
                job = prepare_unit(compiler, unit, Path(folder))
                if policy is not None:
                    return policy_lessons(job, compiler, pool, end_at, policy)
                known = self.plan.decisions
                path = None if known is None else known / f"{unit.name}.savings"
                lessons = default_lessons(job, compiler, pool, end_at, path)
            except PolicyError as fault:
                self.skipped.append(f"{unit.name}: {fault}")
                return None
        # Time ended in the middle, so that some calls were not measured.
        return None if time.monotonic() >= end_at else lessons

    def size(
        self, project: str, units: Sequence[Unit], policy: InlinePolicy
    ) -> ProjectSize:
        """Text bytes of a project's units without and with a policy."""

        def one(unit: Unit) -> tuple[int, int] | None:
            try:
                before = self.compiler.compile(unit.source, unit.compile_flags)
                after = self.compiler.compile(
                    unit.source, unit.compile_flags, inline=policy
                )
            except PolicyError as fault:
                self.skipped.append(f"{unit.name}: {fault}")
                return None
            if after.fault:
                self.skipped.append(f"{unit.name}: {after.fault}")
            return before.text_bytes, after.text_bytes

        pairs = [pair for pair in self.pool.map(one, units) if pair is not None]
        return ProjectSize(
            project,
            len(pairs),
            sum(before for before, _ in pairs),
            sum(after for _, after in pairs),
            max((after / max(1, before) - 1 for before, after in pairs), default=0.0),
        )


def train_inlining(
    units: Sequence[Unit],
    compiler: ClangCompiler,
    out: Path,
    plan: TrainingPlan,
    show: Callable[[str], None] = lambda text: None,
) -> InlineTraining:
    """Train a policy within a time; go on where an earlier call with the same folder ended.

    The policy goes to `policy.npz` in the folder, and what it is worth to `report.json`.
    """
    projects = {unit.project for unit in units}
    if unknown := sorted(plan.held_out - projects):
        raise PolicyError(
            f"the corpus has no project {unknown[0]!r}; wanted some of"
            f" {', '.join(sorted(projects))}"
        )
    teachers = [unit for unit in units if unit.project not in plan.held_out]
    out.mkdir(parents=True, exist_ok=True)
    end_at = time.monotonic() + plan.seconds
    with ThreadPoolExecutor(plan.workers) as pool:
        run = _Training(compiler, out, plan, pool, end_at, show, [])
        lessons = run.lessons(teachers, 0, None)
        policy, curve = fit_policy(lessons, plan.seed)
        policy.save(out / "policy.npz")
        for number in range(1, plan.rounds + 1):
            lessons += run.lessons(teachers, number, policy)
            policy, curve = fit_policy(lessons, plan.seed)
            policy.save(out / "policy.npz")
        sizes: list[ProjectSize] = []
        for project in sorted(plan.held_out):
            show(f"sizes of {project}")
            members = [unit for unit in units if unit.project == project]
            sizes.append(run.size(project, members, policy))
    trained = InlineTraining(policy, curve, sizes, run.skipped)
    report = {
        "curve": [asdict(point) for point in curve],
        "held_out": [asdict(size) for size in sizes],
        "skipped": run.skipped,
    }
    (out / "report.json").write_text(json.dumps(report, indent=2))
    return trained


def _by_turns(units: Sequence[Unit]) -> Iterator[Unit]:
    """The smallest unit of each project, then the second smallest of each, and so on."""
    groups: dict[str, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: unit.source.stat().st_size):
        groups.setdefault(unit.project, []).append(unit)
    for turn in range(max(map(len, groups.values()), default=0)):
        for group in groups.values():
            if turn < len(group):
                yield group[turn]
