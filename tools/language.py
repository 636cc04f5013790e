"""Docstrings that start as fragments, class names used twice: `python tools/language.py`.

The first line of a docstring is a whole sentence, or a noun phrase that names what comes
out: "Seconds of an all-reduce", not "Those of an all-reduce". A class name means one thing
in the whole package. Exit status 1 if there are faults beyond `tools/exceptions.toml`.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tree import Module, parse_package

STARTS = (
    "Those", "That", "Of", "None", "It", "They", "Where", "How", "What", "As", "In", "By",
    "For", "From", "To", "With", "Such", "The same", "One of", "One more",
)  # fmt: skip
"""Words that refer to something unnamed, or that leave out the subject."""

VERBS = (
    "is", "are", "was", "were", "has", "have", "returns", "says", "does", "do", "may",
    "must", "can",
)  # fmt: skip
"""A first paragraph that contains one of these and ends with a full stop may be a whole
sentence."""

FRAGMENT = re.compile(rf"({'|'.join(STARTS)})\b")
SENTENCE = re.compile(rf".*\b({'|'.join(VERBS)})\b.*\.$", re.DOTALL)


def is_fragment(docstring: str) -> bool:
    """Whether the first paragraph names nothing that a reader could look up."""
    first = docstring.split("\n\n")[0]
    start = FRAGMENT.match(first)
    return start is not None and not SENTENCE.match(first, start.end())


def find_fragments(modules: Sequence[Module]) -> list[str]:
    """One line per docstring that starts as a fragment: place, text, what to write."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    faults: list[str] = []
    for module in modules:
        for node in ast.walk(module.tree):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if text and is_fragment(text):
                line = getattr(node, "lineno", 1)
                faults.append(
                    f'{module.path}:{line}: "{text.splitlines()[0]}" starts as a'
                    " fragment: name what comes out, or write a whole sentence"
                )
    return faults


def find_twins(modules: Sequence[Module], allowed: Mapping[str, str]) -> list[str]:
    """One line per public class name that stands for more than one class."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.path}:{node.lineno}")
    return [
        f"class name {name} is used twice, in {' and '.join(found)}:"
        " give each the more specific name"
        for name, found in sorted(places.items())
        if len(found) > 1 and name not in allowed
    ]


def main(root: Path) -> int:
    """Print the faults of the tree at `root`; 1 if there are any."""
    text = (root / "tools/exceptions.toml").read_text(encoding="utf-8")
    allowed = tomllib.loads(text)
    modules = parse_package(root)
    faults = find_twins(modules, allowed["class_names"])
    fragments = find_fragments(modules)
    if len(fragments) > allowed["fragments"]:
        faults += fragments
        faults.append(f"{len(fragments)} fragments, {allowed['fragments']} allowed")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
