"""Patterns that select leaves: globs over dotted paths, and tags."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.workspace import Workspace


@cache
def pattern_regex(pattern: str) -> re.Pattern[str]:
    """`state.**.kernel` as a regular expression: `*` one component, `**` any number."""
    parts: list[str] = []
    for component in pattern.split("."):
        if component == "**":
            parts.append(r"(?:[^.]+(?:\.|$))*")
        else:
            text = re.escape(component).replace(r"\*", "[^.]*").replace(r"\?", "[^.]")
            parts.append(text + r"(?:\.|$)")
    return re.compile("".join(parts) + "$")


def matches(pattern: str, path: str) -> bool:
    """True when the glob covers the whole path."""
    return pattern_regex(pattern).match(path) is not None


def without_indices(path: str) -> str:
    """A path with `*` for each index: `blocks.*.up` for `blocks.3.up`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path)


def find_nodes(work: Workspace, pattern: str) -> list[tuple[str, Node]]:
    """(path, node) of every leaf or tag that a pattern matches; an error if none does."""
    if pattern.startswith("tag:"):
        name = pattern[len("tag:") :]
        found = [(f"tag:{n}", node) for n, node in work.tags if n == name]
        known = sorted({f"tag:{n}" for n, _ in work.tags})
    else:
        nodes = zip(work.paths, work.graph.input_nodes, strict=True)
        found = [(path, node) for path, node in nodes if matches(pattern, path)]
        known = list(work.paths)
    if not found:
        raise TacticError(_no_match(pattern, known))
    return found


def _no_match(pattern: str, known: list[str]) -> str:
    near = get_close_matches(pattern, known, n=3, cutoff=0.3)
    sample = near or known[:8]
    more = f" and {len(known) - len(sample)} more" if len(known) > len(sample) else ""
    there = ", ".join(sample) + more if known else "none"
    what = "tags" if pattern.startswith("tag:") else "leaves"
    hint = ""
    if not pattern.startswith(("tag:", "**")) and any(
        matches(pattern + ".**", p) for p in known
    ):
        hint = f"; did you mean {pattern + '.**'!r}?"
    return (
        f"pattern {pattern!r} matches nothing; the program's {what} are: {there}{hint}"
    )
