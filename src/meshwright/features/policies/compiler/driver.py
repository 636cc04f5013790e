"""The program that builds call instead of a compiler: it records, or replays decisions.

It runs as a script for every file of a build, so that it imports the standard library
only. The environment variable `MESHWRIGHT_POLICIES` names a JSON file of `Settings`.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PLAIN = "MESHWRIGHT_POLICIES_PLAIN"
"""An environment variable with which the driver only runs the compiler."""

_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".C")
_WITH_VALUE = (
    "-I",
    "-isystem",
    "-iquote",
    "-include",
    "-idirafter",
    "-MF",
    "-MT",
    "-MQ",
)
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
"""Flags of a section: SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR."""

_INLINED = re.compile(
    r"remark: (?:[^\n]*?: )?'([^'\n]+)' inlined into '[^'\n]+'[^\n]*?"
    r" at callsite ([^;\n]+);"
)
_PREPROCESSING = ("-I", "-isystem", "-iquote", "-include", "-idirafter", "-M")


def source_of(arguments: list[str]) -> str | None:
    """The one source file of a command that makes an object; `None` for other commands."""
    sources = [each for each in arguments if Path(each).suffix in _SOURCES]
    return sources[0] if "-c" in arguments and len(sources) == 1 else None


def _is_own(source: str) -> bool:
    """Whether a source is a project's own, and none that CMake made to try something."""
    path = Path(source).resolve()
    return path.exists() and "CMakeFiles" not in path.parts


def object_of(arguments: list[str], source: str) -> str:
    """The file that a command writes."""
    for i, each in enumerate(arguments):
        if each == "-o" and i + 1 < len(arguments):
            return arguments[i + 1]
        if each.startswith("-o") and each != "-o":
            return each[2:]
    return Path(source).stem + ".o"


def unit_flags(arguments: list[str], source: str) -> list[str]:
    """Flags of a unit whose includes are in its text: without paths, output and -c."""
    flags: list[str] = []
    skip = False
    for each in arguments:
        if skip or each in ("-c", source) or each.startswith("-o"):
            skip = not skip and each == "-o"
        elif each in _WITH_VALUE:
            skip = True
        elif not each.startswith(_PREPROCESSING):
            flags.append(each)
    return flags


def unit_name(source: str, root: str, flags: list[str]) -> str:
    """A name for a source with its flags: its path as one word, and a digest.

    A file that is compiled for a static and for a shared library makes two units.
    """
    path = os.path.relpath(os.path.realpath(source), root)
    return f"{path.replace('../', '').replace('/', '-')}@{flags_digest(flags)}"


def flags_digest(flags: list[str]) -> str:
    """Six letters that tell apart flags, but those of warnings and debugging."""
    code = " ".join(each for each in flags if not each.startswith(("-W", "-g")))
    return hashlib.sha256(code.encode()).hexdigest()[:6]


def main() -> int:
    """Run the compiler with the arguments of this process; its exit status."""
    settings = json.loads(Path(os.environ["MESHWRIGHT_POLICIES"]).read_text())
    arguments = sys.argv[2:]
    command = [*settings["command"][sys.argv[1]], *arguments]
    source = source_of(arguments)
    if source is None or PLAIN in os.environ or not _is_own(source):
        return subprocess.run(command, check=False).returncode
    # Flags after the build's own win, so that all units are built for one goal.
    command += settings["flags"]
    if settings["mode"] == "record":
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            _record(settings, arguments, source)
        return status
    return _replay(settings, command, arguments, source)


def _record(settings: dict, arguments: list[str], source: str) -> None:  # pyright: ignore[reportMissingTypeArgument]
    """Write the source with its includes, and an entry of the corpus."""
    flags = [*unit_flags(arguments, source), *settings["flags"]]
    name = unit_name(source, settings["root"], flags)
    folder = Path(settings["out"], "units")
    text = folder / f"{name}"
    command = [
        *settings["command"][sys.argv[1]],
        *arguments,
        "-w",
        "-E",
        "-frewrite-includes",
        "-o",
        str(text),
    ]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        return
    entry = {
        "name": name,
        "project": settings["project"],
        "language": sys.argv[1],
        "flags": flags,
    }
    (folder / f"{name}.json").write_text(json.dumps(entry))
    _note(settings, {"unit": name})


def _note(settings: dict, note: dict[str, object]) -> None:  # pyright: ignore[reportMissingTypeArgument]
    """Add a line for the command that runs the build."""
    with Path(settings["notes"]).open("a") as notes:
        notes.write(json.dumps(note) + "\n")


def _replay(
    settings: dict,  # pyright: ignore[reportMissingTypeArgument]
    command: list[str],
    arguments: list[str],
    source: str,
) -> int:
    """Compile as the build asks, then again with the decisions for this source.

    The second object replaces the first one unless it is larger. Whatever goes wrong with
    the second one, the build keeps the first. Sizes and call sites that were not found are
    noted.
    """
    status = subprocess.run(command, check=False).returncode
    out = Path(object_of(arguments, source))
    if status or not out.exists():
        return status
    note = {"before": 0, "after": 0, "sites": 0, "stale": 0, "fault": ""}
    flags = [*unit_flags(arguments, source), *settings["flags"]]
    found = _replay_of(Path(settings["replay"]), source, flags)
    try:
        note["before"] = note["after"] = text_bytes(out)
        if found is not None:
            note |= _tuned(settings, command, out, found)
    except (OSError, ValueError, struct.error, subprocess.TimeoutExpired) as fault:
        note["fault"] = str(fault)
    note["object"] = os.path.relpath(out, settings["root"])
    note["is_tuned"] = found is not None
    _note(settings, note)
    return 0


def _tuned(
    settings: dict,  # pyright: ignore[reportMissingTypeArgument]
    command: list[str],
    out: Path,
    replay: Path,
) -> dict[str, object]:
    """Replace an object by that of a replay file, unless it is larger: what to note."""
    wanted = inlined_lines(replay.read_text())
    note: dict[str, object] = {"sites": len(wanted)}
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        tuned = Path(folder, "tuned.o")
        again = [*command, *replay_flags(str(replay)), "-Rpass=inline"]
        done = run_group(
            [*again, "-o", str(tuned)], settings["seconds"], stderr=subprocess.PIPE
        )
        if done.returncode:
            return note | {"fault": "the compilation with the replay file fails"}
        made = inlined_lines(done.stderr.decode(errors="replace"))
        note["stale"] = len(wanted - made)
        if text_bytes(tuned) <= text_bytes(out):
            note["after"] = text_bytes(tuned)
            tuned.replace(out)
    return note


def run_group(
    command: list[str],
    seconds: float,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` that ends the children of a command, too, when its time is up."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException:
            end_group(process)
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, errors)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """Kill a process that leads a session, and its children.

    A compiler may run in a child: `python -m ziglang` starts one.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _replay_of(folder: Path, source: str, flags: list[str]) -> Path | None:
    """The replay file of the longest end of a source's path, and of these flags.

    If no file has these flags, since they name another folder now, say, the only one of
    this path. If none has a path's end, since the project's folder has another name, the
    only one whose name ends like the path.
    """
    files: dict[str, list[Path]] = {}
    for file in folder.glob("*.replay"):
        name = file.name.removesuffix(".replay").rsplit("@", 1)[0]
        files.setdefault(name, []).append(file)
    parts = Path(source).resolve().parts[1:]
    ends = ["-".join(parts[i:]) for i in range(len(parts))]
    found = next((files[end] for end in ends if end in files), None)
    for end in ends if found is None else ():
        alike = [name for name in files if name.endswith(f"-{end}")]
        if alike:
            found = files[alike[0]] if len(alike) == 1 else None
            break
    digest = flags_digest(flags)
    exact = [file for file in found or () if file.name.endswith(f"@{digest}.replay")]
    fitting = exact or found or []
    return fitting[0] if len(fitting) == 1 else None


def text_bytes(path: Path) -> int:
    """Bytes of sections of an ELF object that are loaded and not written.

    These are code, constants and unwind tables, as `size` of binutils and LLVM counts.
    """
    content = path.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no little-endian 64-bit ELF object")
    return sum(length for _, flags, _, length in sections_of(content) if is_text(flags))


def sections_of(content: bytes) -> list[tuple[int, int, int, int]]:
    """Name (an offset), flags, offset and length of the sections of an ELF object."""
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, _ = struct.unpack_from("<HHH", content, 58)
    if count == 0:  # more sections than 16 bits count: their number is in the first one
        (count,) = struct.unpack_from("<Q", content, table + 32)
    found: list[tuple[int, int, int, int]] = []
    for index in range(count):
        name, _, flags, _, offset, length = struct.unpack_from(
            "<IIQQQQ", content, table + index * size
        )
        found.append((name, flags, offset, length))
    return found


def is_text(flags: int) -> bool:
    """Whether a section with these flags is loaded and not written."""
    return bool(flags & _ALLOC and (flags & _EXECUTE or not flags & _WRITE))


def inlined_lines(remarks: str) -> set[tuple[str, str]]:
    """Symbol and call site of the calls that remarks say were inlined."""
    return set(_INLINED.findall(remarks))


def replay_flags(path: str, fallback: str = "Original") -> list[str]:
    """Flags that make clang follow a replay file.

    fallback: decides about calls without a line: "Original" is the compiler's own
        heuristic, "NeverInline" inlines none.
    """
    options = (
        f"-cgscc-inline-replay={path}",
        "-cgscc-inline-replay-scope=Module",
        f"-cgscc-inline-replay-fallback={fallback}",
    )
    return ["-g1", *(part for option in options for part in ("-mllvm", option))]


if __name__ == "__main__":
    sys.exit(main())
