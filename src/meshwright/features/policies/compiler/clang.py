"""A stock clang with channels for decisions: 17 or newer, or that of PyPI's `ziglang`."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from meshwright.errors import PolicyError

_OLDEST, _NEWEST = 17, 30
_NAMES = ("clang", *(f"clang-{n}" for n in range(_NEWEST, _OLDEST - 1, -1)))
_INSTALL = "install clang 17 or newer, or `pip install ziglang==0.17.0`"


@dataclass(frozen=True, slots=True)
class Clang:
    """The beginning of a command that runs clang, and its major version."""

    command: tuple[str, ...]
    version: int


def find_clang(name: str | None = None) -> Clang:
    """The compiler of a name or path; `None` finds the first one with the channels.

    A path to the `zig` of `ziglang` stands for the clang in it. `zig cc` itself would
    not do: it caches objects by their flags, and so ignores other decisions.
    """
    if name is not None:
        command = _command(name)
        if command is None:
            raise PolicyError(f"no compiler is called {name!r}; {_INSTALL}")
        clang = _asked(command)
        if clang is None or clang.version < _OLDEST:
            version = "no clang" if clang is None else f"clang {clang.version}"
            raise PolicyError(
                f"{name} is {version}, which has no channels for decisions; {_INSTALL}"
            )
        return clang
    for known in (*_NAMES, "ziglang"):
        command = _command(known)
        clang = _asked(command) if command else None
        if clang is not None and clang.version >= _OLDEST:
            return clang
    raise PolicyError(f"no clang with channels for decisions was found; {_INSTALL}")


def _command(name: str) -> tuple[str, ...] | None:
    """The command of a name; `None` if there is no such program."""
    path = shutil.which(name)
    if path is None and name == "ziglang":
        spec = find_spec("ziglang")
        places = (spec and spec.submodule_search_locations) or ()
        path = next((str(Path(place, "zig")) for place in places), None)
    if path is None:
        return None
    if Path(path).name == "zig":
        headers = Path(path).resolve().parent / "lib/include"
        return (path, "clang", "-isystem", str(headers))
    return (path,)


def _asked(command: tuple[str, ...]) -> Clang | None:
    """The compiler of a command, if it says that it is clang."""
    try:
        text = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"clang version (\d+)", text)
    return Clang(command, int(found[1])) if found else None
