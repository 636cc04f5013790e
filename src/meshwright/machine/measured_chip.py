"""Descriptions of machines by measurement: probes, the resulting chip, its TOML."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

import tomlkit

from meshwright.machine.accelerator import Accelerator
from meshwright.machine.chip import Chip, Curve, Gpu
from meshwright.machine.description import ENTRIES
from meshwright.machine.machine import Kind, Level, Machine
from meshwright.plain import joined


@dataclass(frozen=True, slots=True)
class Probe:
    """An op to time, to find the speed of a chip.

    kind: a key of `CURVES`, such as "matmul", or a kind of collective.
    size: FLOPs of the op, or its bytes as the cost model counts them.
    shapes: shapes of the operands on one device; the result has the first one's shape.
    """

    kind: str
    size: int
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.dtype} {self.kind} {'x'.join(map(str, self.shapes[0]))}"


Samples = Sequence[tuple[Probe, float]]
"""Timed ops: pairs of a probe and the seconds that one execution of its op takes."""

CURVES = {
    "matmul": "product",
    "convolution": "convolution",
    "mul-adds": "vector",
    "copy": "memory",
}
"""Names of the efficiency curves that timings give, by kind of probe."""

TINY = Probe("copy", 64, ((8,), ()))
MUL_ADDS = 32
"""Multiply-adds per element in a probe; with so many, memory is no bottleneck."""

# The rate of the first dtype stands for every dtype without a rate.
_DTYPES = ("float32", "bfloat16", "float16")


def probes_of(
    num_devices: int, collectives: Sequence[str]
) -> list[tuple[float, int, list[Probe]]]:
    """Ops to time, one (share of time, least number of probes, probes) per kind of op.

    The shares divide the time budget of the measurement in proportion.
    """
    sides = [16 << i for i in range(10)]
    products, *other_products = [
        [Probe("matmul", 2 * n**3, ((n, n), (n, n)), dtype) for n in sides]
        for dtype in _DTYPES
    ]
    images = ((1, 8, 8), (1, 16, 16), (2, 32, 32), (8, 32, 64), (16, 64, 128))
    # Extreme sizes come first, because the time may end before the sizes between them.
    mul_adds = [
        Probe("mul-adds", (2 * MUL_ADDS) << i, ((1 << i,), (), ()))
        for i in (8, 16, 12, 20, 10, 14, 18, 22)
    ]
    copies = [
        Probe("copy", 8 << i, ((1 << i,), ()))
        for i in (10, 18, 14, 22, 12, 16, 20, 8, 24, 26)
    ]
    exchanges = [
        _collective(kind, exponent, num_devices)
        for exponent in (12, 18, 15, 21, 24, 27)
        for kind in collectives
    ]
    return [
        (2.0, 4, products),
        (2.0, 2, [_convolution(*image) for image in images]),
        (1.5, 3, mul_adds),
        (1.0, 3, copies),
        *((1.0, 0, each) for each in other_products),
        *([(4.0, 6, exchanges)] if num_devices > 1 else []),
    ]


def _convolution(batch: int, side: int, channels: int) -> Probe:
    """A probe of a 3x3 convolution with "same" padding.

    FLOPs on the padding are not counted.
    """
    flops = 2 * batch * channels**2 * (3 * side - 2) ** 2
    shapes = (batch, side, side, channels), (3, 3, channels, channels)
    return Probe("convolution", flops, shapes)


def _collective(kind: str, exponent: int, num_devices: int) -> Probe:
    shard = max(1, 2**exponent // (4 * num_devices))
    held = shard if kind == "all_gather" else shard * num_devices
    return Probe(kind, 4 * shard * num_devices, ((held,),))


# -- chips from measurements --------------------------------------------------------


def measured_chip(
    samples: Samples, memory: tuple[int, str], how: str
) -> tuple[Chip, dict[str, str]]:
    """The chip that measurements describe, and the source of each of its numbers.

    A peak is the best rate of all sizes; the share of it that a size reaches is the
    mean over the dtypes measured.

    samples: a tiny op first, then ops of all kinds.
    memory: bytes that a device may use, and their source.
    how: text that ends the source of every measured number.
    """
    (tiny, tiny_s), *sized = samples
    groups = {kind: [s for s in sized if s[0].kind == kind] for kind in CURVES}
    best = {kind: _fastest(group) for kind, group in groups.items()}
    copies, (num_bytes, origin) = groups["copy"], memory
    chip = Chip(
        flops_per_s={d: _rate(s) for d, s in best["matmul"].items()},
        vector_flops_per_s=_rate(best["mul-adds"]["float32"]),
        hbm_bytes=num_bytes,
        usable_bytes=num_bytes,
        hbm_bytes_per_s=_rate(best["copy"]["float32"]),
        on_chip_bytes=_cached_bytes(copies),
        launch_s=_rounded(tiny_s),
        efficiency={
            curve: _curve(
                groups[kind], best["matmul" if kind == "convolution" else kind]
            )
            for kind, curve in CURVES.items()
        },
    )
    sources = {
        "vector_flops_per_s": best["mul-adds"]["float32"][0],
        "hbm_bytes_per_s": best["copy"]["float32"][0],
        "on_chip_bytes": "the largest copy at twice the rate of the very largest",
        "launch_s": f"{tiny}, in a chain",
    }
    sources |= {f"flops_per_s.{d}": s[0] for d, s in best["matmul"].items()}
    sources |= {f"efficiency.{c}": _extent(groups[k]) for k, c in CURVES.items()}
    named = {f"chip.{key}": f"measured: {s}, {how}" for key, s in sources.items()}
    return chip, named | {"chip.hbm_bytes": origin, "chip.usable_bytes": origin}


def _rounded(number: float) -> float:
    """The number rounded to four significant digits, the precision of measurements."""
    return float(f"{number:.4g}")


def _rate(sample: tuple[Probe, float]) -> float:
    return _rounded(sample[0].size / sample[1])


def _fastest(group: Samples) -> dict[str, tuple[Probe, float]]:
    """The probe that reached the highest rate, with its seconds, by dtype."""
    ascending = sorted(group, key=lambda s: s[0].size / s[1])
    return {probe.dtype: (probe, op_s) for probe, op_s in ascending}


def _curve(group: Samples, best: Mapping[str, tuple[Probe, float]]) -> Curve:
    shares = defaultdict[int, list[float]](list)
    for probe, op_s in group:
        shares[probe.size].append(min(1, probe.size / op_s / _rate(best[probe.dtype])))
    return Curve(tuple((n, _rounded(fmean(s))) for n, s in sorted(shares.items())))


def _extent(group: Samples) -> str:
    dtypes = ", ".join(dict.fromkeys(probe.dtype for probe, _ in group))
    sizes = [probe.size for probe, _ in group]
    return f"{group[0][0].kind} of {dtypes}, {min(sizes):.2g} to {max(sizes):.2g}"


def _cached_bytes(copies: Samples) -> int:
    """Bytes of the last-level cache, estimated from the rates of copies.

    It is the size of the largest copy that has more than twice the rate of the largest
    copy of all; if there is none, the size of the smallest copy.
    """
    by_size = sorted(copies, key=lambda s: s[0].size)
    (first, _), (last, last_s) = by_size[0], by_size[-1]
    fast = [p.size for p, op_s in by_size if p.size / op_s > 2 * last.size / last_s]
    return max(fast, default=first.size)


# -- machines as TOML ---------------------------------------------------------------


def machine_toml(machine: Machine) -> str:
    """The TOML description of a machine, in which numbers have their known sources.

    `parse_machine` parses it again, given the number of devices. Entries with their
    default value and no source are left out.
    """
    head = {name: getattr(machine, name) for name in ("name", "title", "compiler")}
    table = _table(machine, machine.sources, "")
    return tomlkit.dumps(head | {n: e for n, e in table.items() if n in ENTRIES})


def _table(
    record: Machine | Chip | Gpu | Accelerator | Level,
    sources: Mapping[str, str],
    path: str,
) -> dict[str, Any]:
    """The fields that have a source or differ from their default; tables come last."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    entries = {
        each.name: _entry(values[each.name], sources, joined(path, each.name))
        for each in fields(record)
        if values[each.name] not in (None, (), each.default)
        or joined(path, each.name) in sources
    }
    return dict(sorted(entries.items(), key=lambda entry: _has_tables(entry[1])))


def _has_tables(entry: Any) -> bool:
    return type(entry) is dict or (isinstance(entry, list) and bool(entry))


def _entry(value: Any, sources: Mapping[str, str], path: str) -> Any:
    """An entry of the description; one with a source is an inline table of both."""
    if isinstance(value, Curve):
        value = value.points
    if path in sources:
        sourced = tomlkit.inline_table()
        sourced.update({"value": value, "source": sources[path]})
        return sourced
    if isinstance(value, Chip | Gpu | Accelerator):
        return _table(value, sources, path)
    if isinstance(value, Mapping):
        items: Any = value.items()  # pyright: ignore[reportUnknownMemberType]
        return {n: _entry(inner, sources, joined(path, n)) for n, inner in items}
    if isinstance(value, tuple) and value and isinstance(value[0], Level):
        levels: Any = enumerate(value)  # pyright: ignore[reportUnknownArgumentType]
        return [_table(level, sources, f"{path}[{i}]") for i, level in levels]
    return value.value if isinstance(value, Kind) else value
