"""Bytes of each function in an ELF object that has a section for each function."""

import struct
from collections import defaultdict
from pathlib import Path

from meshwright.features.policies.compiler.driving.sections import (
    is_text,
    sections_of,
)

_OWN_SECTION = (".text.unlikely.", ".text.", ".rodata.")
"""Beginnings of the names of sections that `-ffunction-sections` makes: code, and the
tables of switches."""


def function_bytes(path: Path) -> dict[str, int]:
    """Bytes of code, switch tables and unwind entry of each function, by symbol.

    The object was compiled with `-ffunction-sections`. Bytes that belong to no function,
    such as those of strings, have the name "".
    """
    content = path.read_bytes()
    sections = sections_of(content)
    (strings,) = struct.unpack_from("<H", content, 62)
    start = sections[strings][2]
    names = [_text(content, start + name) for name, _, _, _ in sections]
    owners = [_owner(name) for name in names]
    found: defaultdict[str, int] = defaultdict(int)
    for owner, name, (_, flags, _, length) in zip(owners, names, sections, strict=True):
        if is_text(flags) and name != ".eh_frame":
            found[owner] += length
    if ".eh_frame" in names:
        frame = sections[names.index(".eh_frame")]
        symbols = _starts(content, names, sections)
        for place, length in _unwind_entries(content, frame):
            section = symbols.get(place + 8)
            found["" if section is None else owners[section]] += length
    return dict(found)


def _text(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode(errors="replace")


def _owner(name: str) -> str:
    """The function to which a section belongs, or ""."""
    if name.startswith((".rodata.cst", ".rodata.str")):
        return ""  # constants and strings, merged from all functions
    beginning = next((each for each in _OWN_SECTION if name.startswith(each)), None)
    return "" if beginning is None else name.removeprefix(beginning)


def _unwind_entries(
    content: bytes, frame: tuple[int, int, int, int]
) -> list[tuple[int, int]]:
    """Place in the section, and bytes, of each entry of `.eh_frame`."""
    _, _, offset, length = frame
    place, found = 0, list[tuple[int, int]]()
    while place < length:
        (size,) = struct.unpack_from("<I", content, offset + place)
        found.append((place, size + 4))
        place += size + 4
    return found


def _starts(
    content: bytes, names: list[str], sections: list[tuple[int, int, int, int]]
) -> dict[int, int]:
    """Numbers of the sections to which relocations in `.eh_frame` refer, by place."""
    if ".rela.eh_frame" not in names or ".symtab" not in names:
        return {}
    _, _, offset, length = sections[names.index(".rela.eh_frame")]
    symbols = sections[names.index(".symtab")][2]
    found: dict[int, int] = {}
    for place in range(offset, offset + length, 24):
        target, info = struct.unpack_from("<QQ", content, place)
        (section,) = struct.unpack_from("<H", content, symbols + 24 * (info >> 32) + 6)
        if section < len(sections):
            found[target] = section
    return found
