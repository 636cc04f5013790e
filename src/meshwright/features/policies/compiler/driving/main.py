"""Driver of one compilation, which a build calls in the place of the compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

from meshwright.features.policies.compiler.driving.commands import (
    is_own,
    source_of,
    unit_flags,
    unit_name,
)
from meshwright.features.policies.compiler.driving.settings import (
    PLAIN,
    SETTINGS,
    Settings,
    add_note,
    read_settings,
)


def main() -> int:
    """Run the compiler with the arguments of this process; its exit status."""
    settings = read_settings(os.environ[SETTINGS])
    arguments = sys.argv[2:]
    command = [*settings["command"][sys.argv[1]], *arguments]
    source = source_of(arguments)
    if source is None or PLAIN in os.environ or not is_own(source):
        return subprocess.run(command, check=False).returncode
    # Flags after the build's own win, so that all units are built for one goal.
    command += settings["flags"]
    if settings["mode"] == "record":
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            _record(settings, arguments, source)
        return status
    # Each compilation pays for the modules that it imports.
    if settings["mode"] == "advise":
        from meshwright.features.policies.compiler.driving.advising import advise

        return advise(settings, command, arguments, source)
    from meshwright.features.policies.compiler.driving.replaying import replay

    return replay(settings, command, arguments, source)


def _record(settings: Settings, arguments: list[str], source: str) -> None:
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
    add_note(settings, {"unit": name})
