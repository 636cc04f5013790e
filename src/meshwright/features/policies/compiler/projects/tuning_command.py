"""`meshwright policies corpus`, `tune` and `build`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.app.output.table import Table
from meshwright.cli.arguments.options import AsJson, make_console
from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import read_corpus
from meshwright.features.policies.compiler.debian import DEBIAN, debian_source
from meshwright.features.policies.compiler.learned.policy_file import read_policy
from meshwright.features.policies.compiler.projects.build import (
    ObjectSizes,
    build_with_policy,
    build_with_replays,
    record,
)
from meshwright.features.policies.compiler.tuning.tune import TunedUnit, tune

ClangName = Annotated[
    str | None, Option(help="clang 17 or newer: a name or path; else what is found")
]


def corpus_command(
    projects: Annotated[
        list[str],
        Argument(help="folders of make or cmake projects, or debian:NAME of a package"),
    ],
    out: Annotated[Path, Option(help="folder of the corpus")],
    clang: ClangName = None,
    flags: Annotated[str, Option(help="flags after the project's own")] = "-Oz",
) -> None:
    """Build copies of projects, and keep their files as units that compile alone."""
    compiler = find_clang(clang)
    for project in projects:
        folder = Path(project)
        if project.startswith(DEBIAN):
            with show_progress(f"getting {project}"):
                name = project.removeprefix(DEBIAN)
                folder = debian_source(name, out / "sources")
        with show_progress(f"building {project}"):
            added = record(compiler, folder, out, flags.split())
        print(f"{project}: {added} units")


def tune_command(  # noqa: PLR0913  the options of a command
    corpus: Annotated[Path, Argument(help="folder that `policies corpus` wrote")],
    out: Annotated[Path, Option(help="folder for replay files; resumes")],
    goal: Annotated[str, Option(help="what to make small: size")] = "size",
    seconds: Annotated[float, Option(min=1, help="time of the search")] = 600,
    workers: Annotated[int, Option(min=1, help="compilations at once")] = 2,
    clang: ClangName = None,
    as_json: AsJson = False,
) -> None:
    """Search for the inlining with the least text, for each unit of a corpus."""
    if goal != "size":
        raise PolicyError(f"goal is {goal!r}; wanted 'size', text bytes of objects")
    units = read_corpus(corpus)
    with ClangCompiler(clang) as compiler, show_progress("tuning") as show:
        found = tune(
            units,
            compiler,
            out,
            seconds=seconds,
            workers=workers,
            show=lambda unit: show(f"{unit.unit} {_change(unit)}"),
        )
    if as_json:
        print(json.dumps([asdict(unit) for unit in found], indent=2))
        return
    make_console().print(_tuned_table(found))
    if len(found) < len(units):
        print(f"{len(units) - len(found)} units left: run it again to go on")


def build_command(  # noqa: PLR0913  the options of a command
    context: typer.Context,
    replay: Annotated[
        Path | None, Option(help="folder that `policies tune` wrote")
    ] = None,
    policy: Annotated[
        Path | None,
        Option(help="folder that `policies train` wrote; shipped: one of eviction"),
    ] = None,
    check: Annotated[
        bool, Option(help="compile plainly, too, where a policy overrules clang")
    ] = True,
    clang: ClangName = None,
    flags: Annotated[
        str | None,
        Option(
            help="flags after the project's own; -Oz if inlining is decided, else none"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a build (after --) with tuned or learned decisions; print figures of objects."""
    if not context.args:
        raise PolicyError("there is no build; write it after --, such as -- make")
    if (replay is None) == (policy is None):
        raise PolicyError("wanted --replay or --policy, one of them")
    compiler, command = find_clang(clang), context.args
    inlines = policy is None or read_policy(policy).kind == "inline"
    extra = (("-Oz" if inlines else "") if flags is None else flags).split()
    if replay is not None:
        status, sizes = build_with_replays(compiler, command, replay, extra)
    elif policy is not None:
        status, sizes = build_with_policy(compiler, command, policy, extra, check=check)
    else:
        raise AssertionError("one of two options is given")
    if as_json:
        print(json.dumps([asdict(each) for each in sizes], indent=2))
    elif not sizes:
        print("the build compiled no file through cc, gcc, clang, CC or CXX in PATH")
    else:
        rows = [
            (
                each.object,
                f"{each.before:,}",
                f"{each.after:,}",
                f"{each.after / max(1, each.before) - 1:+.2%}",
                _outcome(each),
            )
            for each in sizes
        ]
        before = sum(each.before for each in sizes)
        after = sum(each.after for each in sizes)
        change = f"{after / max(1, before) - 1:+.2%}"
        rows.append(("all", f"{before:,}", f"{after:,}", change, ""))
        titles = ("object", ">before", ">after", ">change", ">decisions")
        make_console().print(Table(titles, tuple(rows)))
        if not inlines and check:
            print(_cost_line(sizes))
    raise typer.Exit(status)


def _cost_line(sizes: Sequence[ObjectSizes]) -> str:
    """The costs of all objects, without and with a policy of register allocation."""
    taken = sum(each.improved for each in sizes)
    cycles = _change_of([(each.cycles_before, each.cycles_after) for each in sizes])
    operations = _change_of(
        [(each.operations_before, each.operations_after) for each in sizes]
    )
    return (
        f"{taken} functions are allocated by the policy, which makes them better. In one"
        f" call of each function: modelled cycles of spill code {cycles}, micro-operations"
        f" {operations}"
    )


def _change_of(pairs: Sequence[tuple[float, float]]) -> str:
    """The sums before and after, and their change."""
    before, after = (sum(column) for column in zip(*pairs, strict=True))
    change = after / before - 1 if before else 0.0
    return f"{before:,.0f} -> {after:,.0f} ({change:+.2%})"


def _change(unit: TunedUnit) -> str:
    return f"{unit.text_bytes / max(1, unit.default_bytes) - 1:+.2%}"


def _tuned_table(found: Sequence[TunedUnit]) -> Table:
    rows = [
        (
            unit.unit,
            f"{unit.default_bytes:,}",
            f"{unit.text_bytes:,}",
            _change(unit),
            f"{unit.compilations:,}",
            _ending(unit),
        )
        for unit in found
    ]
    before = sum(unit.default_bytes for unit in found)
    after = sum(unit.text_bytes for unit in found)
    change = f"{after / max(1, before) - 1:+.2%}"
    work = f"{sum(unit.compilations for unit in found):,}"
    rows.append(("all", f"{before:,}", f"{after:,}", change, work, ""))
    titles = ("unit", ">default", ">tuned", ">change", ">compilations", "")
    return Table(titles, tuple(rows))


def _ending(unit: TunedUnit) -> str:
    """Why the search of a unit ended."""
    if unit.fault:
        return f"skipped: {unit.fault}"
    if unit.is_optimal:
        return "optimal"
    return "" if unit.is_complete else "cut short"


def _outcome(sizes: ObjectSizes) -> str:
    """Call sites that were not found, or why the object is the compiler's own."""
    if sizes.fault:
        return f"left as it was: {sizes.fault}"
    if sizes.is_tuned:
        return f"{sizes.stale} of {sizes.sites} stale"
    if sizes.decisions:
        if sizes.operations_before:
            return f"{sizes.decisions}, {sizes.improved} functions improved"
        if sizes.changed == sizes.decisions:
            return f"{sizes.decisions} decisions"
        return f"{sizes.changed} of {sizes.decisions} overruled"
    return "no decisions"
