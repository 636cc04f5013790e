"""A compilation in which a policy allocates the registers of functions that gain by it."""

import contextlib
import os
import struct
import subprocess
import tempfile
from pathlib import Path

from meshwright.features.policies.compiler.driving.advising import ask
from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.commands import (
    dependency_flags,
    object_of,
    unit_flags,
)
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.driving.settings import Settings
from meshwright.features.policies.compiler.registers.assembler import mixed_text
from meshwright.features.policies.compiler.registers.costs import (
    cost_flags,
    function_costs,
    improved,
)


def allocate(
    settings: Settings, call: CompilerCall, command: list[str], source: str
) -> int:
    """Compile, and take functions in which a policy is better from a second compilation.

    A function is better if its spill code or all its operations are less in one call, and
    neither is more. Whatever goes wrong with the policy, the build keeps its own object.
    """
    status = call.run(command)
    out = call.path(object_of(call.arguments, source))
    if status or not out.exists():
        return status
    note: dict[str, object] = {"before": 0, "after": 0, "fault": ""}
    note |= {"object": os.path.relpath(out, settings.root), "decisions": 0}
    with contextlib.suppress(OSError, ValueError, struct.error):
        note["before"] = note["after"] = text_bytes(out)
    asking = [*command, *dependency_flags(call.arguments, source)]
    try:
        with tempfile.TemporaryDirectory(
            prefix=".meshwright-", dir=out.parent
        ) as place:
            folder = Path(place)
            weighed = _weighed(settings, call, asking, folder)
            if weighed.get("improved"):
                flags = [*unit_flags(call.arguments, source), *settings.flags]
                _assemble(settings, call, flags, folder)
                note["after"] = text_bytes(folder / "mixed.o")
                (folder / "mixed.o").replace(out)
            note |= weighed
    except (OSError, ValueError, struct.error, subprocess.TimeoutExpired) as fault:
        note["fault"] = str(fault) or type(fault).__name__
    settings.notes.append(note)
    return 0


def _weighed(
    settings: Settings, call: CompilerCall, command: list[str], folder: Path
) -> dict[str, object]:
    """Write the text with the better functions: counts and costs to note."""
    texts = [folder / name for name in ("plain.s", "policy.s")]
    records = [folder / name for name in ("plain.yaml", "policy.yaml")]
    commands = [[*command, *cost_flags(str(record))] for record in records]
    answers, _ = ask(settings, call, commands[1], texts[1])
    if not answers.get("changed"):
        return answers
    plainly = [*commands[0], "-o", str(texts[0])]
    if call.run(plainly, subprocess.DEVNULL, settings.seconds):
        raise ValueError("the compilation to assembler text fails")
    plain, policy = map(function_costs, texts, records)
    chosen = improved(plain, policy)
    kept = {**plain, **{name: policy[name] for name in chosen}}
    if chosen:
        ours, theirs = (os.fsdecode(text.read_bytes()) for text in texts)
        mixed = mixed_text(ours, theirs, chosen)
        (folder / "mixed.s").write_bytes(os.fsencode(mixed))
    return {
        **answers,
        "improved": len(chosen),
        "cycles_before": sum(each.cycles for each in plain.values()),
        "cycles_after": sum(each.cycles for each in kept.values()),
        "operations_before": sum(each.operations for each in plain.values()),
        "operations_after": sum(each.operations for each in kept.values()),
    }


def _assemble(
    settings: Settings, call: CompilerCall, flags: list[str], folder: Path
) -> None:
    """Make the object of the text in a folder. flags: of the unit."""
    start = [*settings.command[call.language], *flags, "-w"]
    start += ["-Wno-unused-command-line-argument", "-c", "-x", "assembler"]
    start += _padding(flags)
    command = [*start, str(folder / "mixed.s"), "-o", str(folder / "mixed.o")]
    if call.run(command, subprocess.DEVNULL, settings.seconds):
        raise ValueError("the code of both compilations cannot be assembled")


def _padding(flags: list[str]) -> list[str]:
    """Flags with which an assembler pads code as the compiler does.

    The compiler pads for the processor for which it tunes, which its assembler is not told.
    """
    tuned = [
        each.removeprefix("-mtune=") for each in flags if each.startswith("-mtune=")
    ]
    if not tuned and any(each.startswith(("-march=", "-mcpu=")) for each in flags):
        return []
    chosen = tuned[-1] if tuned else "generic"
    return ["-Xclangas", "-target-cpu", "-Xclangas", chosen]
