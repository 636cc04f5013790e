"""The search for the smallest text, against an enumeration of all decision vectors."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, read_corpus
from meshwright.features.policies.compiler.projects.build import (
    build_with_replays,
    record,
)
from meshwright.features.policies.compiler.replay import Decisions
from meshwright.features.policies.compiler.tuning.call_graph import (
    CallGraph,
    parse_call_graph,
)
from meshwright.features.policies.compiler.tuning.search import InliningSearch
from meshwright.features.policies.compiler.tuning.states import Sized
from meshwright.features.policies.compiler.tuning.tune import tune
from tests.features.policies.compiler.programs import c_program


def search(cc: ClangCompiler, file: Path, graph: CallGraph) -> InliningSearch:
    def size(decisions: Decisions, fallback: str, by_function: bool) -> Sized:
        made = cc.replay(file, ["-Oz"], decisions, fallback, by_function=by_function)
        return Sized(made.text_bytes, made.inlined, made.functions)

    return InliningSearch(graph, size, ThreadPoolExecutor(2), time.monotonic() + 300)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_enumeration_finds_the_least_of_all_answers(
    cc: ClangCompiler, tmp_path: Path, seed: int
) -> None:
    """All answers to the channel in order, which know nothing of call sites."""
    file = tmp_path / "unit.c"
    file.write_text(c_program(4, seed))
    graph = parse_call_graph(cc.ir(file, ["-Oz"]))
    tuned = search(cc, file, graph).run({})
    assert tuned.is_optimal
    sizes: list[int] = []
    todo: list[tuple[int, ...]] = [()]
    while todo:
        prefix = todo.pop()
        answers = itertools.chain(prefix, itertools.repeat(0))
        made = cc.compile(file, inline=lambda call, a=answers: next(a))
        sizes.append(made.text_bytes)
        given = len(made.decisions["inline"])
        todo += [
            (*prefix, *(0,) * (place - len(prefix)), 1)
            for place in range(len(prefix), given)
        ]
    assert tuned.text_bytes == min(sizes)


def test_the_calls_of_a_unit_are_those_that_clang_inlines(
    cc: ClangCompiler, tmp_path: Path
) -> None:
    file = tmp_path / "unit.c"
    file.write_text(c_program(12, seed=2))
    graph = parse_call_graph(cc.ir(file, ["-Oz"]))
    for level in ("-Oz", "-O2"):
        inlined = cc.replay(file, [level], {}).inlined
        assert inlined
        assert inlined <= graph.sites(inlined)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    names = ["one", "two"]
    for seed, name in enumerate(names):
        (folder / f"{name}.c").write_text(
            c_program(5 + 4 * seed, seed).replace("f8(", "g8(")
        )
    (folder / "Makefile").write_text(
        "all: one.o two.o\n%.o: %.c\n\t$(CC) -O2 -c -o $@ $<\n"
    )
    return folder


def test_a_project_is_tuned_and_built(
    cc: ClangCompiler, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "decisions"
    assert record(cc.clang, project, corpus, ["-Oz"]) == 2
    units = read_corpus(corpus)
    names = [unit.name.rsplit("@", 1)[0] for unit in units]
    assert names == ["project-one.c", "project-two.c"]
    found = tune(units, cc, out, seconds=200)
    assert all(unit.text_bytes <= unit.default_bytes for unit in found)
    assert sum(u.text_bytes for u in found) < sum(u.default_bytes for u in found)
    assert tune(units, cc, out, seconds=200) == found  # from the journal
    monkeypatch.chdir(project)
    status, sizes = build_with_replays(cc.clang, ["make"], out, ["-Oz"])
    assert status == 0
    assert {each.object: each.after for each in sizes} == {
        f"{Path(unit.unit.removeprefix('project-')).stem}.o": unit.text_bytes
        for unit in found
    }
    moved = project.rename(project.parent / "renamed")
    monkeypatch.chdir(moved)
    status, elsewhere = build_with_replays(cc.clang, ["make", "-B"], out, ["-Oz"])
    assert status == 0
    assert [each.after for each in elsewhere] == [each.after for each in sizes]
    monkeypatch.chdir(moved.rename(project))
    # An edited function loses its decisions, and nothing else.
    text = (project / "two.c").read_text()
    (project / "two.c").write_text(text.replace("return x;", "\n\n\n\nreturn x;"))
    (project / "two.c").write_text("int more;\n" + (project / "two.c").read_text())
    status, again = build_with_replays(cc.clang, ["make", "-B"], out, ["-Oz"])
    assert status == 0
    assert all(each.after <= each.before for each in again)


def test_a_unit_of_a_corpus_compiles_as_its_source(
    cc: ClangCompiler, project: Path, tmp_path: Path
) -> None:
    record(cc.clang, project, tmp_path / "corpus", ["-Oz"])
    unit: Unit = read_corpus(tmp_path / "corpus")[0]
    alone = cc.compile(unit.source, unit.compile_flags)
    assert alone.text_bytes == cc.compile(project / "one.c").text_bytes


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("-Oz", "compilation with the replay file fails"),
        ("-Oz -flto", "no little-endian"),
    ],
)
def test_a_build_never_fails_for_its_decisions(
    cc: ClangCompiler,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    said: str,
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("one", "two"):
        (broken / f"{name}.c.replay").write_text("no decisions")
    monkeypatch.chdir(project)
    status, sizes = build_with_replays(cc.clang, ["make"], broken, flags.split())
    assert status == 0
    assert (project / "one.o").stat().st_size > 0
    assert all(said in each.fault for each in sizes)
    assert len(sizes) == 2
