"""Models of a family as targets: modules that build a target at a member's scales."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from meshwright.cli.arguments.target import Target, find_target
from meshwright.errors import NasError
from meshwright.features.codesign.nas.cost.latency_command import made_with
from meshwright.features.codesign.nas.families.scaling import Family, Member

_MODULE = '''\
"""{text} at the scales of a family: {target_ms:g} ms on {machine}."""

from meshwright.codesign import nas

TARGET = {path!r}
MODEL = nas.scaled_target(TARGET, {trained!r})
FORWARD = nas.scaled_target(TARGET, {priced!r}, is_inference=True)

schedules = MODEL.schedules
inference = {{"target": lambda: FORWARD.made}}
"""The forward pass whose latency was predicted."""


def target():
    """The target at these scales, as `meshwright plan` takes it."""
    return MODEL.made
'''


def scaled_target(
    text: str, changes: Mapping[str, Any], *, is_inference: bool = False
) -> Target:
    """A target that is built with changes such as its scales; `made` are function and args.

    text: path.py[:name] or pkg.module:name. is_inference: the module's forward pass of
        that name, if it has one.
    """
    found = find_target(text, is_inference=is_inference)
    return replace(found, make=partial(made_with, found, changes))


def write_family(
    folder: Path,
    family: Family,
    text: str | None = None,
    machine: str = "",
    changes: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write `family.json`, and with a target a module for each member; their paths.

    changes: what the priced forward pass was called with besides depth, width and size,
        such as the batch.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plain_text = json.dumps(family.to_plain(), indent=1) + "\n"
        (folder / "family.json").write_text(plain_text, encoding="utf-8")
        written: list[Path] = []
        for member in family.members if text is not None else ():
            # A point in the name would make it a module in a package.
            target = f"{member.target_ms:g}".replace(".", "_")
            path = folder / f"model_{target}ms.py"
            scales = scales_of(member)
            module = _MODULE.format(
                text=text, path=_absolute(text or ""), trained=scales,
                priced={**scales, **(changes or {})}, target_ms=member.target_ms,
                machine=machine,
            )  # fmt: skip
            path.write_text(module, encoding="utf-8")
            written.append(path)
    except OSError as fault:
        raise NasError(f"cannot write the family in {folder}: {fault}") from None
    return written


def scales_of(member: Member) -> dict[str, float]:
    """What a target is called with for a member."""
    size = max(1, round(member.resolution))
    return {"depth": member.depth, "width": member.width, "size": size}


def _absolute(text: str) -> str:
    """The text of a target with the whole path of its file."""
    place, colon, name = text.rpartition(":")
    if not colon:
        place, name = text, ""
    return f"{Path(place).resolve()}{colon}{name}" if place.endswith(".py") else text
