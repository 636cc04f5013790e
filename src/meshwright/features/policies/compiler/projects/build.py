"""A build of a make or cmake project through the compiler driver."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.clang import Clang
from meshwright.features.policies.compiler.driving.call_server import (
    compiler_programs,
)
from meshwright.features.policies.compiler.driving.settings import PLAIN, Settings
from meshwright.features.policies.compiler.learned.policy_file import read_policy
from meshwright.features.policies.compiler.learned.serve import policy_process


@dataclass(frozen=True, slots=True)
class ObjectSizes:
    """Text bytes of one object of a build, before and after.

    sites: inlined calls in its replay file. stale: those that this source lacks.
    decisions: those that a policy took. changed: those in which it overruled the compiler.
    improved: functions that a policy allocates, which makes them better; others are the
        compiler's own. cycles_before, cycles_after: modelled cycles of spill code in one
        call of each function, and operations_before, operations_after, micro-operations
        that it runs, if a policy of register allocation was checked.
    fault: why the object is the compiler's own; "" if nothing went wrong.
    """

    object: str
    before: int
    after: int
    sites: int = 0
    stale: int = 0
    is_tuned: bool = False
    decisions: int = 0
    changed: int = 0
    improved: int = 0
    cycles_before: float = 0
    cycles_after: float = 0
    operations_before: float = 0
    operations_after: float = 0
    fault: str = ""


def _commands(clang: Clang) -> dict[str, list[str]]:
    """The compiler of each language."""
    cxx = list(clang.command)
    at = 2 if cxx[1:2] == ["clang"] else 1
    return {
        "c": list(clang.command),
        "c++": [*cxx[:at], "--driver-mode=g++", *cxx[at:]],
    }


def environment_of(folder: Path) -> dict[str, str]:
    """The environment in which a build finds the driver as its compiler."""
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        **os.environ,
        "PATH": path,
        "CC": str(folder / "cc"),
        "CXX": str(folder / "c++"),
    }


def build_with_replays(
    clang: Clang,
    command: Sequence[str],
    replay: Path,
    flags: Sequence[str] = (),
    seconds: float = 120,
) -> tuple[int, list[ObjectSizes]]:
    """Run a build with the decisions in a folder: its exit status, and its objects.

    flags: appended to the flags of each file. seconds: limit on a second compilation.
    """
    if not replay.is_dir() or not any(replay.glob("*.replay")):
        raise PolicyError(
            f"{replay} has no replay files; make them by `meshwright policies tune`"
        )
    settings = Settings(
        _commands(clang),
        "replay",
        list(flags),
        Path.cwd(),
        seconds,
        replay=replay.resolve(),
    )
    return _build(command, settings)


def build_with_policy(
    clang: Clang,
    command: Sequence[str],
    policy: Path,
    flags: Sequence[str] = (),
    seconds: float = 120,
    *,
    check: bool = True,
) -> tuple[int, list[ObjectSizes]]:
    """Run a build with a learned policy: its exit status, and its objects.

    check: whether to compile a file plainly as well where the policy has overruled the
    compiler, and to keep the smaller object. If the policy allocates registers, each
    function is kept as it is better.
    """
    kind = read_policy(policy).kind
    with policy_process(policy) as (path, _):
        return build_asking(
            clang, command, path, flags, seconds, check=check, decides=kind
        )


def build_asking(  # noqa: PLR0913  those of `build_with_policy`, and what is decided
    clang: Clang,
    command: Sequence[str],
    socket: Path,
    flags: Sequence[str] = (),
    seconds: float = 120,
    *,
    check: bool = True,
    decides: str = "inline",
) -> tuple[int, list[ObjectSizes]]:
    """Run a build as `build_with_policy` does, with a policy that answers at a socket.

    decides: what the policy decides about: "inline", "evict" or "priority".
    """
    settings = Settings(
        _commands(clang),
        "advise",
        list(flags),
        Path.cwd(),
        seconds,
        socket=str(socket),
        decides=decides,
        check=check,
    )
    return _build(command, settings)


def _build(command: Sequence[str], settings: Settings) -> tuple[int, list[ObjectSizes]]:
    """Run a build, whose files we compile: its exit status, and its objects."""
    with compiler_programs(settings) as folder:
        try:
            done = subprocess.run(command, env=environment_of(folder), check=False)
        except OSError as fault:
            raise PolicyError(f"the build cannot start: {fault}") from None
        return done.returncode, [ObjectSizes(**note) for note in _once(settings.notes)]


def record(clang: Clang, project: Path, out: Path, flags: Sequence[str]) -> int:
    """Build a copy of a project, and add its units to a corpus: how many were added."""
    if not project.is_dir():
        raise PolicyError(f"{project} is no folder with a make or cmake project")
    (out / "units").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="meshwright-build-") as place:
        copy = Path(place).resolve() / _project_name(project.resolve(), out)
        shutil.copytree(project, copy, symlinks=True)
        settings = Settings(
            _commands(clang),
            "record",
            list(flags),
            copy.parent,
            out=out.resolve(),
            project=copy.name,
        )
        with compiler_programs(settings) as folder:
            fault = _built(copy, environment_of(folder))
        added = len(_once(settings.notes))
    if not added:
        raise PolicyError(f"building {project} compiled no C or C++ file ({fault})")
    return added


def _once(notes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Notes of compilations, each of them once."""
    return list({repr(note): note for note in notes}.values())


def _project_name(project: Path, out: Path) -> str:
    """A name of a project in a corpus that no project from another folder has.

    It is the end of its path, as long as needed.
    """
    record = out / "projects.json"
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    parts = project.parts[1:]
    names = ("-".join(parts[-length:]) for length in range(1, len(parts) + 1))
    name = next(
        (each for each in names if known.get(each, str(project)) == str(project)),
        f"{project.name}-{len(known)}",
    )
    known[name] = str(project)
    record.write_text(json.dumps(known, indent=1))
    return name


def _built(copy: Path, environment: Mapping[str, str]) -> str:
    """Configure and build a project as far as it goes; why no file may be compiled."""
    fault = "it has nothing to compile"
    for command in _steps(copy, environment):
        is_build = command[0] == "make" or "--build" in command
        done = subprocess.run(
            command,
            cwd=copy,
            # Files that a configuration compiles to try something are no units.
            env={**environment, **({} if is_build else {PLAIN: "1"})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            fault = done.stderr.strip()[-300:]
    return fault


def _steps(copy: Path, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """The commands that build a project."""
    compilers = [f"{name}={environment[name]}" for name in ("CC", "CXX")]
    jobs = f"-j{os.cpu_count() or 1}"
    configure = copy / "configure"
    if configure.exists():
        configure.chmod(0o755)
        yield ["./configure"]
    if any((copy / name).exists() for name in ("Makefile", "makefile", "GNUmakefile")):
        yield ["make", "-k", jobs, *compilers]
    elif (copy / "CMakeLists.txt").exists():
        yield ["cmake", "-S", ".", "-B", "build-units"]
        yield ["cmake", "--build", "build-units", "--", "-k", jobs]
    else:
        raise PolicyError(
            f"{copy.name} has no Makefile, no CMakeLists.txt and no configure script"
        )
