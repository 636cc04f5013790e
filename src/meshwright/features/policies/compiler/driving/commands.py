"""Commands of a compiler: their source, object, and the flags that make a unit."""

import hashlib
import os
from pathlib import Path

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
_PREPROCESSING = ("-I", "-isystem", "-iquote", "-include", "-idirafter", "-M")


def source_of(arguments: list[str]) -> str | None:
    """The one source file of a command that makes an object; `None` for other commands."""
    sources = [each for each in arguments if Path(each).suffix in _SOURCES]
    return sources[0] if "-c" in arguments and len(sources) == 1 else None


def is_own(source: Path) -> bool:
    """Whether a source is a project's own, and none that CMake made to try something."""
    path = source.resolve()
    return path.exists() and "CMakeFiles" not in path.parts


def object_of(arguments: list[str], source: str) -> str:
    """The file that a command writes."""
    for i, each in enumerate(arguments):
        if each == "-o" and i + 1 < len(arguments):
            return arguments[i + 1]
        if each.startswith("-o") and each != "-o":
            return each[2:]
    return Path(source).stem + ".o"


def dependency_flags(arguments: list[str], source: str) -> list[str]:
    """Flags with which a compilation to another file tells make what the build wants.

    A compiler that writes dependencies names them, and the file that it writes them to,
    after its object, unless the build names them.
    """
    if not any("-MD" in each or "-MMD" in each for each in arguments):
        return []
    made = object_of(arguments, source)
    flags: list[str] = []
    if not any(each.startswith(("-MT", "-MQ")) for each in arguments):
        flags += ["-MT", made]
    if not any(each.startswith(("-MF", "-Wp,")) for each in arguments):
        flags += ["-MF", str(Path(made).with_suffix(".d"))]
    return flags


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


def unit_name(source: Path, root: Path, flags: list[str]) -> str:
    """A name for a source with its flags: its path as one word, and a digest.

    A file that is compiled for a static and for a shared library makes two units.
    """
    path = os.path.relpath(os.path.realpath(source), root)
    return f"{path.replace('../', '').replace('/', '-')}@{flags_digest(flags)}"


def flags_digest(flags: list[str]) -> str:
    """Six letters that tell apart flags, but those of warnings and debugging."""
    code = " ".join(each for each in flags if not each.startswith(("-W", "-g")))
    return hashlib.sha256(code.encode()).hexdigest()[:6]
