"""Sections of ELF objects, and the bytes of text in them."""

import struct
from pathlib import Path

_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
"""Flags of a section: SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR."""


def text_bytes(path: Path) -> int:
    """Bytes of sections of an ELF object that are loaded and not written.

    These are code, constants and unwind tables, as `size` of binutils and LLVM counts.
    """
    content = path.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no little-endian 64-bit ELF object")
    return sum(length for _, flags, _, length in sections_of(content) if is_text(flags))


def sections_of(content: bytes) -> list[tuple[int, int, int, int]]:
    """Name (an offset), flags, offset and length of the sections of an ELF object."""
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, _ = struct.unpack_from("<HHH", content, 58)
    if count == 0:  # more sections than 16 bits count: their number is in the first one
        (count,) = struct.unpack_from("<Q", content, table + 32)
    found: list[tuple[int, int, int, int]] = []
    for index in range(count):
        name, _, flags, _, offset, length = struct.unpack_from(
            "<IIQQQQ", content, table + index * size
        )
        found.append((name, flags, offset, length))
    return found


def is_text(flags: int) -> bool:
    """Whether a section with these flags is loaded and not written."""
    return bool(flags & _ALLOC and (flags & _EXECUTE or not flags & _WRITE))
