"""Settings of a build, and what its compilations leave to be told."""

from dataclasses import dataclass, field
from pathlib import Path

PLAIN = "MESHWRIGHT_POLICIES_PLAIN"
"""An environment variable with which the compiler is only run."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a build.

    command: the compiler, by language. flags: appended to those of each file.
    mode: "record", "replay" or "advise". root: folder from which names are told.
    seconds: limit on a second compilation. out, project: the corpus, and the name in it.
    replay: folder of replay files. socket: where the policy answers. decides: what about,
        the name of a channel. check: whether to compile plainly as well where a policy
        has overruled the compiler.
    notes: what compilations tell, in the order of their ends.
    """

    command: dict[str, list[str]]
    mode: str
    flags: list[str]
    root: Path
    seconds: float = 120
    out: Path = Path()
    project: str = ""
    replay: Path = Path()
    socket: str = ""
    decides: str = "inline"
    check: bool = True
    notes: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
