"""Published figures as printed; numbers of Pope et al. as text, to keep their digits.

`half_digit` says by how much rounding may have changed a printed number.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from benchmarks.papers.inference_layouts import CacheCut, Decoder, InferenceRun


def half_digit(printed: str) -> float:
    """Half a unit of the last digit: 0.005 for "0.29".

    Zeros that end a number without a point are taken as rounded: 500 for "43000".
    """
    digits = Decimal(printed) if "." in printed else Decimal(printed).normalize()
    exponent = digits.as_tuple().exponent
    assert isinstance(exponent, int), f"{printed} is not finite"
    return float(Decimal(10) ** exponent) / 2


# -- Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023 ------------

PALM_540B = Decoder(118, 18432, 73728, heads=48, d_head=256, vocab=256_000)
PALM_62B = Decoder(64, 8192, 32768, heads=32, d_head=256, vocab=256_000)
"""Chowdhery et al., "PaLM" (2022), Table 1."""


@dataclass(frozen=True, slots=True)
class Context:
    """A row of Table 1: the longest context at a batch, on 64 chips, 30 % of memory."""

    name: str
    kv_heads: int
    d_head: int
    cut: CacheCut
    batch: int
    context: str


TABLE_1 = tuple(
    Context(name, kv_heads, d_head, cut, batch, context)
    for name, kv_heads, d_head, cut, contexts in (
        ("multi-head", 64, 128, CacheCut.HEADS, ("1320", "330")),
        ("multi-query, by head", 1, 256, CacheCut.HEADS, ("660", "165")),
        ("multi-query, by batch", 1, 256, CacheCut.BATCH, ("43000", "10700")),
    )
    for batch, context in zip((128, 512), contexts, strict=True)
)


@dataclass(frozen=True, slots=True)
class Served:
    """A row of Table 2 or 3: a run on some chips, its share of peak, its time."""

    name: str
    decoder: Decoder
    chips: int
    passes: InferenceRun
    mfu_percent: str
    time_s: str


def _prefill(batch: int, layout: str, cut: CacheCut, weight_bytes: int) -> InferenceRun:
    return InferenceRun(batch, 2048, 1, 2048, cut, layout, weight_bytes)


def _decode(batch: int, weight_bytes: int) -> InferenceRun:
    return InferenceRun(batch, 1, 64, 2048, CacheCut.BATCH, "WS 2D", weight_bytes)


_FAST = _prefill(1, "WS 2D", CacheCut.HEADS, 1)
_LARGE = _prefill(512, "WG XYZ", CacheCut.BATCH, 2)

TABLES_2_3 = (
    Served("540B fast prefill", PALM_540B, 64, _FAST, "43", "0.29"),
    Served("540B fast decode", PALM_540B, 64, _decode(64, 1), "14", "1.82"),
    Served("540B large prefill", PALM_540B, 64, _LARGE, "76", "85.2"),
    Served("540B large decode", PALM_540B, 64, _decode(512, 2), "33", "6.0"),
    Served("62B fast prefill", PALM_62B, 16, _FAST, "36", "0.16"),
    Served("62B fast decode", PALM_62B, 16, _decode(32, 1), "8", "0.73"),
    Served("62B large prefill", PALM_62B, 32, _LARGE, "73", "20.2"),
    Served("62B large decode", PALM_62B, 8, _decode(512, 2), "37", "5.1"),
)


# -- Alabed et al., "PartIR", ASPLOS 2025, Table 4: its simulator, 8 x 4 TPU v3 cores --

T32 = {
    "bp": (100343.69, 4803.34),
    "bp+mp": (59826.45, 4856.25),
    "bp+mp+z2": (50124.45, 4856.25),
    "bp+mp+z3": (45068.63, 4960.32),
    "bp+mp+z3+emb": (47541.60, 4946.35),
    "mp": (177148.23, 10837.42),
    "emb": (176974.51, 10934.86),
}
"""Megabytes a device and milliseconds a step, by schedule."""

IT32 = {
    "bp": (18302.16, 1139.31),
    "bp+mp": (5607.73, 1447.83),
    "mp": (5151.44, 4327.35),
}
