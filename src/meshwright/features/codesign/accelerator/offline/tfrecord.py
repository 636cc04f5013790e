"""TFRecord files without TensorFlow: records, and the `tf.train.Example` in each.

A record is a length of 8 bytes, the masked CRC32C of these bytes, the payload, and the
masked CRC32C of the payload, all little-endian.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AcceleratorError

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, reflected (RFC 3720, appendix B.4)."""

_MASK_DELTA = 0xA282EAD8
"""Constant that the format adds to a rotated checksum."""

_LARGEST = 1 << 24
"""Bytes of a record above which its length counts as corrupt."""

Example = Mapping[str, float | int | None]
"""The first value of each feature by name; `None` for one of bytes or without values."""


@cache
def _crc_loop() -> Any:
    """The compiled loop of CRC32C; numba is imported when a file is first read."""
    import numba

    def update(crc: Any, data: Any, table: Any) -> Any:
        for byte in data:
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc

    return numba.njit(
        "uint32(uint32, Array(uint8, 1, 'C', readonly=True), uint32[::1])"
    )(update)


@cache
def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


def crc32c(data: bytes) -> int:
    """The CRC32C checksum of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    values = np.frombuffer(data, np.uint8)
    return int(_crc_loop()(0xFFFFFFFF, values, _crc_table())) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as a record stores it: rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def read_records(path: Path) -> Iterator[bytes | None]:
    """The payloads of a TFRecord file, which may be compressed by gzip.

    `None` stands for a corrupt record. What follows a corrupt length cannot be found, so
    that the rest of the file is one corrupt record.
    """
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_gzip else path.open("rb") as file:
            yield from _records(file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield None
    except OSError as fault:
        raise AcceleratorError(
            f"cannot read logged designs from {path}: {fault.strerror or fault}"
        ) from None


def _records(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes | None]:
    while header := file.read(12):
        if len(header) < 12:
            yield None
            return
        length, crc = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != crc or length > _LARGEST:
            yield None
            return
        payload, footer = file.read(length), file.read(4)
        if len(payload) < length or len(footer) < 4:
            yield None
            return
        is_whole = masked_crc32c(payload) == int.from_bytes(footer, "little")
        yield payload if is_whole else None


def parse_example(payload: bytes) -> Example:
    """The features of a serialised `tf.train.Example`; `ValueError` if it is none."""
    found: dict[str, float | int | None] = {}
    for number, features in _fields(payload):
        for inner, entry in _fields(_bytes(features)) if number == 1 else ():
            if inner == 1:
                parts = dict(_fields(_bytes(entry)))
                name = _bytes(parts.get(1, b"")).decode("utf-8")
                found[name] = _first_value(_bytes(parts.get(2, b"")))
    return found


def _first_value(feature: bytes) -> float | int | None:
    """The first value of a `Feature`: of its float list (2) or its int64 list (3)."""
    for number, values in _fields(feature):
        for inner, value in _fields(_bytes(values)):
            if inner == 1 and number == 2:
                return float(struct.unpack_from("<f", _bytes(value))[0])
            if inner == 1 and number == 3:
                whole = value if isinstance(value, int) else _varint(value, 0)[0]
                return whole - (1 << 64) if whole >> 63 else whole
    return None


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message was expected")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: number, and an integer or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = 8 if kind == 1 else 4
        if kind == 2:
            size, at = _varint(message, at)
        elif kind not in (1, 5):
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field beyond the end")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")
