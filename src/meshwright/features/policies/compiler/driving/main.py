"""The compilation that a call of a build's compiler stands for."""

import json
import subprocess
from collections.abc import Callable

from meshwright.features.policies.compiler.driving.advising import advise
from meshwright.features.policies.compiler.driving.allocating import allocate
from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.commands import (
    is_own,
    source_of,
    unit_flags,
    unit_name,
)
from meshwright.features.policies.compiler.driving.replaying import replay
from meshwright.features.policies.compiler.driving.settings import PLAIN, Settings


def compile_call(settings: Settings, call: CompilerCall) -> int | None:
    """The exit status of a compilation; `None` if the build shall only run its compiler."""
    source = source_of(call.arguments)
    is_plain = PLAIN.encode() in call.environment
    if source is None or is_plain or not is_own(call.path(source)):
        return None
    # Flags after the build's own win, so that all units are built for one goal.
    command = [*settings.command[call.language], *call.arguments, *settings.flags]
    return _MODES[settings.mode](settings, call, command, source)


def _record(
    settings: Settings, call: CompilerCall, command: list[str], source: str
) -> int:
    """Compile, and write the source with its includes, and an entry of the corpus."""
    status = call.run(command)
    if status:
        return status
    flags = [*unit_flags(call.arguments, source), *settings.flags]
    name = unit_name(call.path(source), settings.root, flags)
    folder = settings.out / "units"
    text = folder / name
    expand = ["-w", "-E", "-frewrite-includes", "-o", str(text)]
    before = [*settings.command[call.language], *call.arguments]
    if call.run([*before, *expand], subprocess.DEVNULL):
        return status
    entry = {
        "name": name,
        "project": settings.project,
        "language": call.language,
        "flags": flags,
    }
    (folder / f"{name}.json").write_text(json.dumps(entry))
    settings.notes.append({"unit": name})
    return status


def _advise(
    settings: Settings, call: CompilerCall, command: list[str], source: str
) -> int:
    """Compile with a policy, in the way of its kind."""
    is_weighed = settings.check and settings.decides != "inline"
    return (allocate if is_weighed else advise)(settings, call, command, source)


_MODES: dict[str, Callable[[Settings, CompilerCall, list[str], str], int]] = {
    "record": _record,
    "replay": replay,
    "advise": _advise,
}
