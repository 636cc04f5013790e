"""A compilation that follows the replay file of its source."""

import os
import struct
import subprocess
import tempfile
from pathlib import Path

from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.commands import (
    dependency_flags,
    flags_digest,
    object_of,
    unit_flags,
)
from meshwright.features.policies.compiler.driving.remarks import (
    inlined_lines,
    replay_flags,
)
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.driving.settings import Settings


def replay(
    settings: Settings, call: CompilerCall, command: list[str], source: str
) -> int:
    """Compile as the build asks, then again with the decisions for this source.

    The second object replaces the first one unless it is larger. Whatever goes wrong with
    the second one, the build keeps the first. Sizes and call sites that were not found are
    noted.
    """
    status = call.run(command)
    out = call.path(object_of(call.arguments, source))
    if status or not out.exists():
        return status
    note: dict[str, object] = {
        "before": 0,
        "after": 0,
        "sites": 0,
        "stale": 0,
        "fault": "",
    }
    flags = [*unit_flags(call.arguments, source), *settings.flags]
    found = _replay_of(settings.replay, call.path(source), flags)
    try:
        note["before"] = note["after"] = text_bytes(out)
        if found is not None:
            again = [*command, *dependency_flags(call.arguments, source)]
            note |= _tuned(settings, call, again, (out, found))
    except (OSError, ValueError, struct.error, subprocess.TimeoutExpired) as fault:
        note["fault"] = str(fault)
    note["object"] = os.path.relpath(out, settings.root)
    note["is_tuned"] = found is not None
    settings.notes.append(note)
    return 0


def _tuned(
    settings: Settings, call: CompilerCall, command: list[str], files: tuple[Path, Path]
) -> dict[str, object]:
    """Replace an object by that of a replay file, unless it is larger: what to note.

    files: the object and the replay file.
    """
    out, replay = files
    wanted = inlined_lines(replay.read_text())
    note: dict[str, object] = {"sites": len(wanted)}
    with tempfile.TemporaryDirectory(dir=out.parent) as place:
        tuned, remarks = Path(place, "tuned.o"), Path(place, "remarks")
        again = [*command, *replay_flags(str(replay)), "-Rpass=inline"]
        with remarks.open("wb") as errors:
            done = call.run([*again, "-o", str(tuned)], errors, settings.seconds)
        if done:
            return note | {"fault": "the compilation with the replay file fails"}
        made = inlined_lines(remarks.read_text(errors="replace"))
        note["stale"] = len(wanted - made)
        if text_bytes(tuned) <= text_bytes(out):
            note["after"] = text_bytes(tuned)
            tuned.replace(out)
    return note


def _replay_of(folder: Path, source: Path, flags: list[str]) -> Path | None:
    """The replay file of the longest end of a source's path, and of these flags.

    If no file has these flags, since they name another folder now, say, the only one of
    this path. If none has a path's end, since the project's folder has another name, the
    only one whose name ends like the path.
    """
    files: dict[str, list[Path]] = {}
    for file in folder.glob("*.replay"):
        name = file.name.removesuffix(".replay").rsplit("@", 1)[0]
        files.setdefault(name, []).append(file)
    parts = source.resolve().parts[1:]
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
