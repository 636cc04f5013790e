"""Learned inlining: what teaches, what decides, and builds whose policy dies."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Observation
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus
from meshwright.features.policies.compiler.learned.fitting import fit_policy
from meshwright.features.policies.compiler.learned.inline_policy import (
    InlinePolicy,
    read_inline_policy,
)
from meshwright.features.policies.compiler.learned.lessons import (
    InliningLessons,
    inlined_at,
)
from meshwright.features.policies.compiler.learned.serve import policy_process
from meshwright.features.policies.compiler.learned.trace import trace_inlining
from meshwright.features.policies.compiler.learned.train import (
    TrainingPlan,
    train_inlining,
)
from meshwright.features.policies.compiler.projects.build import (
    build_asking,
    build_with_policy,
    record,
)
from meshwright.features.policies.compiler.tuning.call_graph import parse_call_graph
from tests.features.policies.compiler.programs import c_program

NAMES = ("callee_users", "cost_estimate", "inlining_default")


def constant_policy(saved_bytes: float, margin: float = 0.0) -> InlinePolicy:
    """A policy that expects the same of every call."""
    shape = (1, 2)
    return InlinePolicy(
        NAMES,
        np.zeros(shape, np.int64),
        np.full(shape, np.inf),
        np.full(shape, saved_bytes, np.float32),
        0.0,
        margin,
    )


def observation(**features: int) -> Observation:
    return Observation({name: np.array([value]) for name, value in features.items()})


def lessons(rows: list[list[int]], saved: list[float]) -> InliningLessons:
    features = np.array(rows, np.int64)
    return InliningLessons(
        NAMES,
        features,
        np.array(saved, np.float32),
        features[:, 2].astype(np.bool_),
        1000,
    )


def drawn_lessons(seed: int, rows: int = 300) -> InliningLessons:
    """Calls that save 20 bytes if their cost is below 10, and else lose 20."""
    draw = np.random.default_rng(seed)
    features = np.stack(
        [draw.integers(1, 9, rows), draw.integers(0, 40, rows), np.zeros(rows, int)],
        axis=1,
    )
    saved = np.where(features[:, 1] < 10, 20, -20)
    return lessons(features.tolist(), saved.tolist())


def test_a_fitted_policy_decides_as_its_lessons() -> None:
    policy, curve = fit_policy([(f"p{k}", drawn_lessons(k)) for k in range(4)], seed=0)
    assert policy(observation(callee_users=3, cost_estimate=2, inlining_default=0))
    assert not policy(observation(callee_users=3, cost_estimate=30, inlining_default=1))
    assert curve[-1].saved > 0.9 * curve[-1].possible > 0


def test_lessons_without_a_rule_leave_the_compiler_alone() -> None:
    draw = np.random.default_rng(0)
    random = [
        (
            f"p{k}",
            lessons(
                drawn_lessons(k).features.tolist(),
                draw.choice([-40.0, 20.0], 300).tolist(),
            ),
        )
        for k in range(4)
    ]
    policy, curve = fit_policy(random, seed=0)
    assert curve[-1].saved == 0
    for default in (0, 1):
        call = observation(callee_users=3, cost_estimate=2, inlining_default=default)
        assert policy(call) == default


def test_one_project_cannot_be_left_out() -> None:
    with pytest.raises(PolicyError, match="of 1 project; wanted 2 or more"):
        fit_policy([("p", drawn_lessons(0)), ("p", drawn_lessons(1))], seed=0)


def test_a_policy_file_reads_as_written_and_is_small(tmp_path: Path) -> None:
    policy, _ = fit_policy([(f"p{k}", drawn_lessons(k)) for k in range(3)], seed=0)
    policy.save(tmp_path / "policy.npz")
    again = read_inline_policy(tmp_path)
    rows = drawn_lessons(9).features.astype(np.float64)
    for row in rows:
        assert again.saved_bytes(row) == policy.saved_bytes(row)
    assert (tmp_path / "policy.npz").stat().st_size < 1 << 20


def test_faulty_policies_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="has no inlining policy; make one by"):
        read_inline_policy(tmp_path)
    (tmp_path / "policy.npz").write_bytes(b"PK no zip")
    with pytest.raises(PolicyError, match="is no inlining policy"):
        read_inline_policy(tmp_path)
    with pytest.raises(PolicyError, match="has no feature 'cost_estimate'"):
        constant_policy(1)(observation(callee_users=1, inlining_default=0))


def test_a_trace_names_the_calls_that_a_replay_inlines(
    cc: ClangCompiler, tmp_path: Path
) -> None:
    file = tmp_path / "unit.c"
    file.write_text(c_program(10, seed=4))
    unit = Unit("unit.c", "p", "c", ("-Oz",), file)
    asked: list[int] = []

    def alternate(call: Observation) -> int:
        asked.append(len(asked) % 2)
        return asked[-1]

    made, calls = trace_inlining(cc, unit, alternate)
    assert [call.is_inlined for call in calls] == [bool(answer) for answer in asked]
    graph = parse_call_graph(cc.ir(file, ["-Oz"]))
    inlined = inlined_at(graph, {call.place for call in calls if call.is_inlined})
    again = cc.replay(file, ["-Oz"], dict.fromkeys(inlined, True), "NeverInline")
    assert again.text_bytes == made.text_bytes


@pytest.fixture
def projects(cc: ClangCompiler, tmp_path: Path) -> Path:
    """A corpus of three projects with two files each."""
    for number in range(3):
        folder = tmp_path / f"project{number}"
        folder.mkdir()
        for seed, name in enumerate(("one", "two")):
            text = c_program(6, 2 * number + seed).replace("f5(", f"{name}_f(")
            (folder / f"{name}.c").write_text(text)
        (folder / "Makefile").write_text(
            "all: one.o two.o\n%.o: %.c\n\t$(CC) -O2 -c -o $@ $<\n"
        )
        record(cc.clang, folder, tmp_path / "corpus", ["-Oz"])
    return tmp_path / "corpus"


@pytest.mark.slow
def test_a_policy_is_trained_and_goes_on(
    cc: ClangCompiler, projects: Path, tmp_path: Path
) -> None:
    units = read_corpus(projects)
    plan = TrainingPlan(frozenset({"project2"}), seconds=300, rounds=1)
    first = train_inlining(units, cc, tmp_path / "policy", plan)
    assert not first.skipped
    assert [size.project for size in first.sizes] == ["project2"]
    files = {
        file: file.stat().st_mtime_ns
        for file in (tmp_path / "policy" / "lessons").rglob("*.npz")
    }
    assert len(files) == 8
    again = train_inlining(units, cc, tmp_path / "policy", plan)
    assert again.sizes == first.sizes
    assert files == {file: file.stat().st_mtime_ns for file in files}
    with pytest.raises(PolicyError, match="has no project 'other'"):
        train_inlining(
            units, cc, tmp_path / "policy", TrainingPlan(frozenset({"other"}), 10)
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of three files, in which the test runs."""
    folder = tmp_path / "built"
    folder.mkdir()
    for seed in range(3):
        text = c_program(9, seed).replace("f8(", f"last{seed}(")
        (folder / f"f{seed}.c").write_text(text)
    (folder / "Makefile").write_text(
        "all: f0.o f1.o f2.o\n%.o: %.c\n\t$(CC) -c -o $@ $<\nclean:\n\trm -f *.o\n"
    )
    monkeypatch.chdir(folder)
    return folder


def test_a_build_asks_the_policy(
    cc: ClangCompiler, project: Path, tmp_path: Path
) -> None:
    always, same = tmp_path / "always.npz", tmp_path / "same.npz"
    constant_policy(1.0).save(always)
    constant_policy(1.0, margin=5.0).save(same)
    status, plain = build_with_policy(cc.clang, ["make"], same, ["-Oz"])
    assert status == 0
    assert [each.changed for each in plain] == [0, 0, 0]
    assert all(each.decisions and not each.fault for each in plain)
    whole = {each.object: each.after for each in plain}
    for seed in range(3):
        made = cc.compile(project / f"f{seed}.c", ["-Oz"])
        assert (project / f"f{seed}.o").read_bytes() == made.object
        assert whole[f"f{seed}.o"] == made.text_bytes
    _, checked = build_with_policy(cc.clang, ["make", "-B"], always, ["-Oz"])
    assert any(each.changed for each in checked)
    assert {each.object: each.before for each in checked} == whole
    assert all(each.after <= each.before for each in checked)
    _, bold = build_with_policy(cc.clang, ["make", "-B"], always, ["-Oz"], check=False)
    smaller = {each.object: min(each.after, whole[each.object]) for each in bold}
    assert smaller == {each.object: each.after for each in checked}
    for seed in range(3):
        made = cc.compile(project / f"f{seed}.c", ["-Oz"], inline=lambda call: 1)
        assert (project / f"f{seed}.o").read_bytes() == made.object


def test_a_build_keeps_what_make_shall_know(
    cc: ClangCompiler, project: Path, tmp_path: Path
) -> None:
    """Dependencies name the build's object, and lie where the build looks for them."""
    constant_policy(1.0).save(tmp_path / "policy.npz")
    (project / "f0.h").write_text("")
    (project / "f0.c").write_text('#include "f0.h"\n' + (project / "f0.c").read_text())
    make = ["make", "f0.o"]
    policy = tmp_path / "policy.npz"
    makefile = project / "Makefile"
    makefile.write_text(makefile.read_text().replace("-c -o", "-MMD -c -o"))
    for check in (False, True):
        status, _ = build_with_policy(
            cc.clang, [*make, "-B"], policy, ["-Oz"], check=check
        )
        assert status == 0
        assert (project / "f0.d").read_text().split() == ["f0.o:", "f0.c", "f0.h"]
        (project / "f0.d").unlink()
    left = {each.name for each in project.iterdir()}
    assert left == {"Makefile", "f0.c", "f0.h", "f0.o", "f1.c", "f2.c"}


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_build_goes_on_without_its_policy(
    cc: ClangCompiler, project: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    """A policy that is dead or hangs leaves clang's own decisions, and says so."""
    constant_policy(1.0).save(tmp_path / "policy.npz")
    with policy_process(tmp_path / "policy.npz") as (path, process):
        os.kill(process.pid, sent)
        status, sizes = build_asking(cc.clang, ["make", "-j3"], path, ["-Oz"])
    assert status == 0
    assert len(sizes) == 3
    assert all(each.fault for each in sizes)
    for seed in range(3):
        made = cc.compile(project / f"f{seed}.c", ["-Oz"])
        assert (project / f"f{seed}.o").read_bytes() == made.object


@pytest.mark.parametrize("alive_s", [0.1, 0.3])
def test_a_build_ends_without_the_process_that_runs_it(
    cc: ClangCompiler, project: Path, alive_s: float
) -> None:
    """Killed at some moment of the build, it leaves clang's own objects."""
    script = (
        "from pathlib import Path\n"
        "from meshwright.features.policies.compiler.clang import find_clang\n"
        "from meshwright.features.policies.compiler.projects.build import build_asking\n"
        "make = ['sh', '-c', 'echo begins; make -B -j2; echo $? > status']\n"
        "build_asking(find_clang(), make, Path('no-socket'), ['-Oz'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begins\n"
        time.sleep(alive_s)
        process.kill()
        process.stdout.read()  # until the build has ended, which writes there as well
    assert (project / "status").read_text() == "0\n"
    for seed in range(3):
        made = cc.compile(project / f"f{seed}.c", ["-Oz"])
        plain = cc.compile(project / f"f{seed}.c", [])
        built = (project / f"f{seed}.o").read_bytes()
        assert built in (made.object, plain.object)


@pytest.mark.slow
def test_a_hundred_kills_of_the_policy_in_builds_fail_none(
    cc: ClangCompiler, project: Path, tmp_path: Path
) -> None:
    """The process is killed at any moment of a build, as draws say."""
    constant_policy(1.0).save(tmp_path / "policy.npz")
    draw = random.Random(0)
    faults = 0
    for _ in range(100):
        with policy_process(tmp_path / "policy.npz") as (path, process):
            killer = threading.Timer(draw.uniform(0, 1), process.kill)
            killer.start()
            status, sizes = build_asking(cc.clang, ["make", "-B", "-j2"], path, ["-Oz"])
            killer.join()
        assert status == 0
        assert len(sizes) == 3
        assert all(each.after <= each.before for each in sizes)
        faults += sum(bool(each.fault) for each in sizes)
    assert faults > 50
