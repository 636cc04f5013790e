"""One assembler text from the functions of two, which differ in register allocation.

Functions are allocated independently of each other, so that each one's code can be taken
from either text. Code that the compiler moves out of several functions is not one's own.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

_BEGIN = re.compile(r"(?:#|//) -- Begin function (\S+)")
_END = re.compile(r"(?:#|//) -- End function\n")
_SECTION = re.compile(r"\t\.(?:section|text|data|bss)\b.*")
_MAP = re.compile(
    r"^\t\.section\t\S*llvm_bb_addr_map.*\n(?:(?!\t\.(?:section|text)\b).*\n)*",
    re.MULTILINE,
)
_LABEL = re.compile(r"\.Ltmp\d+\b")
"""Labels that are numbered through a text; all others have the number of their function."""


@dataclass(frozen=True, slots=True)
class _Function:
    """The text of a function, with its tables; section: in which it ends."""

    name: str
    text: str
    section: str


def mixed_text(plain: str, other: str, names: Collection[str]) -> str:
    """The plain text with the functions of these names from the other one.

    Without the tables of frequencies. `ValueError` if the texts cannot be mixed.
    """
    if "\t.loc\t" in plain:
        raise ValueError(
            "debug information would no longer fit the code; build without it"
            " (--flags=-g0)"
        )
    functions, end = _split(plain)
    others, other_end = _split(other)
    shapes = [[(each.name, each.section) for each in x] for x in (functions, others)]
    if shapes[0] != shapes[1] or _LABEL.split(end) != _LABEL.split(other_end):
        raise ValueError("the code with the policy has other functions or tables")
    # Tables after the functions, such as those of computed jumps, name their labels.
    known = dict(zip(_LABEL.findall(other_end), _LABEL.findall(end), strict=True))

    def renamed(label: re.Match[str]) -> str:
        return known.get(label[0], label[0].replace("tmp", "mixed"))

    parts = [
        _LABEL.sub(renamed, theirs.text) if ours.name in names else ours.text
        for ours, theirs in zip(functions, others, strict=True)
    ]
    return "".join((*parts, end))


def _split(text: str) -> tuple[list[_Function], str]:
    """The functions of a text, and what follows the last one."""
    *parts, end = _END.split(_MAP.sub("", text))
    functions: list[_Function] = []
    section = ""
    for part in parts:
        names, sections = _BEGIN.findall(part), _SECTION.findall(part)
        if len(names) != 1:
            raise ValueError("the code does not tell where its functions begin")
        if names[0].startswith("OUTLINED_FUNCTION"):
            raise ValueError(
                "the compiler moves code out of functions, which belongs to several"
            )
        section = sections[-1] if sections else section
        functions.append(_Function(names[0], part + "\n", section))
    return functions, end
