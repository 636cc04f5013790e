"""Sources of Debian packages, through apt's own client.

The lists of packages and what is downloaded lie in a folder of our own: the system's
lists are read, and never changed. Packages are checked against the system's keys by apt.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from meshwright.errors import PolicyError

DEBIAN = "debian:"
"""How the argument of a package begins: debian:zlib, or debian:zlib=1:1.2.13.dfsg-1."""

_SYSTEM = Path("/etc/apt")


def debian_source(package: str, folder: Path, *, system: Path = _SYSTEM) -> Path:
    """The folder with a package's source, without Debian's patches; downloaded once.

    Patches fit the build of Debian's tools, which need not be there.

    folder: keeps lists and sources. system: apt's configuration, whose repositories are
    asked for sources.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+(=[\w.+:~-]+)?", package):
        raise PolicyError(
            f"{package!r} is no name of a Debian package; wanted one such as "
            f"{DEBIAN}zlib or {DEBIAN}zlib=1:1.2.13.dfsg-1"
        )
    for program, needed in (("apt-get", "apt"), ("dpkg-source", "dpkg-dev")):
        if not shutil.which(program):
            raise PolicyError(
                f"{DEBIAN}{package} needs {program}, which this machine lacks "
                f"(the package {needed}); unpack the source yourself, and name its folder"
            )
    target = (folder / package).resolve()
    if not target.is_dir():
        downloads = folder.resolve() / ".apt" / "downloads" / package
        options = _own_lists(folder.resolve(), system)
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir(parents=True)
        getting = ["apt-get", "-q", "source", "--download-only", *options, package]
        _run(package, getting, downloads)
        for described in downloads.glob("*.dsc"):  # apt-get has checked what it names
            unpacking = ["dpkg-source", "--no-check", "--skip-patches", "-x"]
            _run(package, [*unpacking, described.name, "unpacked"], downloads)
            (downloads / "unpacked").rename(target)
    return target


def _own_lists(folder: Path, system: Path) -> list[str]:
    """Options by which apt-get reads sources' lists of our own; they are loaded once."""
    lists, parts, cache = (
        folder / ".apt" / name for name in ("lists", "parts", "cache")
    )
    for each in (lists / "partial", parts, cache / "archives" / "partial"):
        each.mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::lists": lists,
        "Dir::Etc::sourcelist": os.devnull,
        "Dir::Etc::sourceparts": parts,
        "Dir::Cache": cache,
        "APT::Sandbox::User": "",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    loaded = folder / ".apt" / "loaded"
    if not loaded.exists():
        _write_repositories(parts, system)
        updating = ["apt-get", "-q", "update", "--error-on=any", *options]
        _run("the lists of sources", updating, folder)
        loaded.touch()
    return options


def _write_repositories(parts: Path, system: Path) -> None:
    """Write the system's repositories again, as repositories of sources alone."""
    found = False
    files = [system / "sources.list", *sorted((system / "sources.list.d").glob("*"))]
    for file in files:
        text = file.read_text() if file.is_file() else ""
        if file.suffix == ".sources":
            text, count = re.subn(r"(?m)^Types:.*$", "Types: deb-src", text)
        elif file.suffix == ".list":
            lines = re.findall(r"(?m)^deb\s.*$", text)
            text, count = "\n".join(f"deb-src{line[3:]}" for line in lines), len(lines)
        else:
            count = 0
        if count:
            found = True
            (parts / file.name).write_text(text + "\n")
    if not found:
        raise PolicyError(
            f"{system} names no repository of Debian; unpack the source yourself, and "
            "name its folder"
        )


def _run(what: str, command: Sequence[str], folder: Path) -> None:
    """Run a program of Debian's in a folder; its own words if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        faults = re.findall(
            r"(?m)^(?:[EW]|dpkg-source: error): (.*)$", done.stdout + done.stderr
        )
        told = "; ".join(faults) or done.stderr.strip()[-300:]
        raise PolicyError(f"{command[0]} cannot get {what}: {told}")
