"""Settings of a build that the driver reads, and the notes that it leaves."""

import json
from pathlib import Path
from typing import TypedDict

PLAIN = "MESHWRIGHT_POLICIES_PLAIN"
"""An environment variable with which the driver only runs the compiler."""

SETTINGS = "MESHWRIGHT_POLICIES"
"""The environment variable that names the JSON file of `Settings`."""


class Settings(TypedDict):
    """Settings of a build.

    command: the compiler, by language. flags: appended to those of each file.
    mode: "record", "replay" or "advise". root: folder from which names are told.
    notes: file to which the driver adds lines. seconds: limit on a second compilation.
    out, project: the corpus, and the name in it. replay: folder of replay files.
    socket: where the policy answers. decides: what about, the name of a channel. check:
        whether to compile plainly as well where a policy has overruled the compiler.
    """

    command: dict[str, list[str]]
    flags: list[str]
    mode: str
    root: str
    notes: str
    seconds: float
    out: str
    project: str
    replay: str
    socket: str
    decides: str
    check: bool


UNUSED: Settings = {
    "command": {},
    "flags": [],
    "mode": "",
    "root": "",
    "notes": "",
    "seconds": 120,
    "out": "",
    "project": "",
    "replay": "",
    "socket": "",
    "decides": "inline",
    "check": True,
}
"""Settings of modes that do not read them."""


def read_settings(path: str) -> Settings:
    """The settings of a build."""
    return json.loads(Path(path).read_text())


def add_note(settings: Settings, note: dict[str, object]) -> None:
    """Add a line for the command that runs the build."""
    with Path(settings["notes"]).open("a") as notes:
        notes.write(json.dumps(note) + "\n")
