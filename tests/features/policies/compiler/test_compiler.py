"""Decisions by callbacks and by replay files, against plain clang."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Observation
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.replay import (
    CallSite,
    inlined_sites,
    read_replay,
    write_replay,
)
from tests.features.policies.compiler.programs import c_program


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unit") / "unit.c"
    path.write_text(c_program(9, seed=1))
    return path


@pytest.mark.parametrize("level", ["-Oz", "-O2"])
def test_the_default_answered_gives_identical_objects(
    cc: ClangCompiler, source: Path, level: str
) -> None:
    plain = cc.compile(source, [level])
    advised = cc.compile(source, [level], inline=lambda call: call.default)
    assert advised.fault == ""
    assert len(advised.decisions["inline"]) > 3
    assert advised.object == plain.object
    size = subprocess.run(["size", "--version"], capture_output=True, check=False)
    if size.returncode == 0:
        file = source.with_suffix(".o")
        file.write_bytes(plain.object)
        table = subprocess.run(["size", file], capture_output=True, check=True).stdout
        assert int(table.splitlines()[1].split()[0]) == plain.text_bytes


def test_answers_decide(cc: ClangCompiler, source: Path) -> None:
    never = cc.compile(source, inline=lambda call: 0)
    always = cc.compile(source, inline=lambda call: 1)
    assert never.object != always.object
    assert not any(never.decisions["inline"])


def test_recorded_answers_of_register_allocation_give_identical_objects(
    cc: ClangCompiler, source: Path
) -> None:
    flags = ["-O2", "-fno-omit-frame-pointer"]
    asked: list[str] = []

    def last(call: Observation) -> float:
        asked.extend(call.features)
        mask = call.features["mask"]
        return int(mask.nonzero()[0][-1])

    def sizes(call: Observation) -> float:
        return float(call.features["li_size"][0])

    first = cc.compile(source, flags, evict=last, priority=sizes)
    assert first.fault == ""
    log = {kind: iter(answers) for kind, answers in first.decisions.items()}
    again = cc.compile(
        source,
        flags,
        evict=lambda call: next(log["evict"]),
        priority=lambda call: next(log["priority"]),
    )
    assert first.decisions["priority"]
    assert again.object == first.object


def test_a_policy_that_raises_hangs_or_dies_leaves_the_heuristic(
    cc: ClangCompiler, source: Path
) -> None:
    plain = cc.compile(source)
    failed = cc.compile(source, inline=lambda call: 1 / 0)
    assert failed.object == plain.object
    assert "the inline policy failed (ZeroDivisionError" in failed.fault
    with ClangCompiler(cc.clang.command[0], seconds=1) as hasty:
        hung = hasty.compile(source, inline=lambda call: time.sleep(3))
    assert hung.object == plain.object
    assert "hangs" in hung.fault


def test_a_killed_process_with_a_policy_leaves_clang_to_end(
    cc: ClangCompiler, source: Path
) -> None:
    """The compiler must not wait for a policy whose process is gone."""
    child = os.fork()
    if child == 0:
        cc.compile(source, inline=lambda call: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    ends = time.monotonic() + 10
    while compilations_in(cc) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not compilations_in(cc)
    assert cc.compile(source).object


def compilations_in(cc: ClangCompiler) -> list[bytes]:
    """Command lines of running processes that name the folder of a compiler."""
    folder, found = str(cc._folder).encode(), list[bytes]()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(place.read_bytes())
    return [line for line in found if folder in line]


def test_the_default_replayed_has_its_size(cc: ClangCompiler, source: Path) -> None:
    plain = cc.compile(source)
    default = cc.replay(source, ["-Oz"], {})
    assert default.text_bytes == plain.text_bytes
    assert default.inlined
    decisions = dict.fromkeys(default.inlined, True)
    for fallback in ("NeverInline", "Original"):
        again = cc.replay(source, ["-Oz"], decisions, fallback)
        assert again.text_bytes == plain.text_bytes
        assert again.inlined == default.inlined


def test_replay_files_read_as_written(tmp_path: Path) -> None:
    sites = {
        CallSite("f", ("g:3:12",)): True,
        CallSite("h", ("f:1:2", "g:3:12")): False,
    }
    write_replay(tmp_path / "r", sites)
    assert read_replay(tmp_path / "r") == sites
    text = (tmp_path / "r").read_text()
    assert inlined_sites(text) == {CallSite("f", ("g:3:12",))}


def test_faults_say_what_to_do(cc: ClangCompiler, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f( {")
    with pytest.raises(
        PolicyError, match=r"bad\.c does not compile by itself with -Oz"
    ):
        cc.compile(tmp_path / "bad.c")
    with pytest.raises(PolicyError, match="no compiler is called 'no-clang'"):
        find_clang("no-clang")
    old = tmp_path / "clang"
    old.write_text("#!/bin/sh\necho clang version 16.0.1\n")
    old.chmod(0o755)
    with pytest.raises(PolicyError, match="is clang 16, which has no channels"):
        find_clang(str(old))
