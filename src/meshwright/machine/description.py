"""Reading of a machine's TOML, entry by entry, with checks and errors that name it."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, NoReturn

from meshwright.errors import MachineError, did_you_mean
from meshwright.machine.chip import EFFICIENCY_CLASSES, Chip, Curve, Gpu
from meshwright.machine.machine import Kind, Level

_DTYPES = (
    "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "int4",
    "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64",
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip


class DescriptionReader:
    """Reads the parsed TOML of one machine, checks it, and words the errors.

    In each method, `path` is the dotted name of the entry, such as `chip.hbm_bytes`.

    name: the machine's name, for errors.
    sources: where each number comes from, by path; filled while entries are read.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources: dict[str, str] = {}

    def fail(self, what: str) -> NoReturn:
        """Raise `MachineError` with the machine's name and the text `what`."""
        raise MachineError(f"machine {self.name!r}: {what}")

    def table(self, entry: object, path: str) -> dict[str, Any]:
        """The entry as a dict; fails if it is not a TOML table."""
        if not isinstance(entry, Mapping):
            self.fail(f"wanted a table [{path}]")
        return dict(entry)

    def tables(self, table: dict[str, Any], path: str) -> list[object]:
        """Remove a repeated entry `[[path]]` from `table` and return its tables.

        Empty if there is no such entry.
        """
        entry = table.pop(path, [])
        if not isinstance(entry, list):
            self.fail(f"{path} is {entry!r:.60}; wanted tables [[{path}]]")
        return entry

    def text(self, entry: object, path: str) -> str:
        """The entry, if it is a string; otherwise fails."""
        if not isinstance(entry, str):
            self.fail(f"{path} is {entry!r:.60}; wanted a text in quotes")
        return entry

    def whole(self, entry: object, path: str) -> int:
        """The entry as an integer of 0 or more; fails for anything else."""
        number = self.number(entry, path)
        if number != int(number):
            self.fail(f"{path} is {number}; wanted a whole number")
        return int(number)

    def _value(self, entry: Any, path: str) -> Any:
        """The value of an entry, which may be a table of a value and its source.

        The source is recorded in `sources`.
        """
        if isinstance(entry, Mapping):
            self._check_known(entry, ("value", "source"), path)
            self.sources[path] = str(entry.get("source", ""))
            return entry.get("value")
        return entry

    def number(self, entry: object, path: str) -> float:
        """The entry as a number of 0 or more; fails for anything else."""
        entry = self._value(entry, path)
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            self.fail(f"{path} is {entry!r}; wanted a number")
        if not 0 <= entry < float("inf"):
            self.fail(f"{path} is {entry}; wanted 0 or more")
        return entry

    def device_count(self, num_devices: int | None, chips: int, per_chip: int) -> int:
        """The number of devices that a user asks for; it must fill whole chips.

        num_devices: the number given; `None` for all devices of `chips` chips.
        per_chip: number of devices of one chip.
        """
        if isinstance(chips, bool) or not isinstance(chips, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.fail(f"chips is {chips!r}; wanted a whole number")
        wanted = chips * per_chip if num_devices is None else num_devices
        if wanted < 1:
            self.fail(f"wanted at least one chip, got {chips}")
        if wanted % per_chip:
            self.fail(
                f"chips have {per_chip} devices each; got {wanted} devices, wanted a "
                f"multiple of {per_chip}"
            )
        return wanted

    def chip(self, table: dict[str, Any]) -> Chip:
        """The `Chip` that the `[chip]` table describes; fails for invalid entries."""
        values: dict[str, Any] = {}
        self._check_names(table, Chip, "chip")
        for key, entry in table.items():
            path = f"chip.{key}"
            if key == "flops_per_s":
                rates = self.table(entry, path)
                self._check_dtypes(rates, path)
                values[key] = {
                    d: self.number(n, f"{path}.{d}") for d, n in rates.items()
                }
            elif key == "efficiency":
                curves = self.table(entry, path)
                self._check_known(curves, EFFICIENCY_CLASSES, path)
                values[key] = {
                    c: self._curve(p, f"{path}.{c}") for c, p in curves.items()
                }
            elif key in ("tile", "unit"):
                values[key] = self._extents(entry, path)
            else:
                values[key] = self.number(entry, path)
        return self._made(Chip, values, "[chip]")

    def gpu(self, entry: object) -> Gpu:
        """The `Gpu` that the `[gpu]` table describes; fails for invalid entries."""
        table = self.table(entry, "gpu")
        self._check_names(table, Gpu, "gpu")
        values: dict[str, Any] = {
            "capability": self._extents(table.pop("capability"), "gpu.capability")
        }
        for key, number in table.items():
            values[key] = self.whole(number, f"gpu.{key}")
        return self._made(Gpu, values, "[gpu]")

    def level(self, entry: object, index: int) -> Level:
        """The `Level` (kind of link) that the table number `index` describes."""
        path = f"levels[{index}]"
        table = self.table(entry, path)
        self._check_names(table, Level, path)
        kinds = [kind.value for kind in Kind]
        if table.get("kind") not in kinds:
            self.fail(
                f"{path}.kind is {table.get('kind')!r}; wanted {', '.join(kinds)}"
            )
        values: dict[str, Any] = {
            "kind": Kind(table.pop("kind")),
            "name": self.text(table.pop("name"), f"{path}.name"),
            "extents": self._extents(table.pop("extents"), f"{path}.extents"),
        }
        for key, number in table.items():
            values[key] = self.number(number, f"{path}.{key}")
        for key in ("wraps_at", "group_links", "one_ring"):
            values[key] = self.whole(values.get(key, 0), f"{path}.{key}")
        return self._made(Level, values, f"[{path}]")

    def _extents(self, entry: object, path: str) -> tuple[int, ...]:
        entry = self._value(entry, path)
        if not isinstance(entry, list) or not entry:
            self.fail(f"{path} is {entry!r}; wanted a list of sizes")
        return tuple(self.whole(n, path) for n in entry)

    def _curve(self, entry: object, path: str) -> Curve:
        """The efficiency curve of an entry `[[size, share], ...]`."""
        entry = self._value(entry, path)
        if not isinstance(entry, list) or not all(
            isinstance(p, list) and len(p) == 2 for p in entry
        ):
            self.fail(f"{path} is {entry!r}; wanted [[size, share], ...]")
        points = tuple((self.number(n, path), self.number(s, path)) for n, s in entry)
        return self._made(Curve, {"points": points}, path)

    def _check_dtypes(self, rates: Mapping[str, object], path: str) -> None:
        """Fail if a key of `rates`, a table of FLOP/s by dtype, is not a dtype."""
        for name in rates:
            if name not in _DTYPES:
                self.fail(
                    f"{path}.{name} is of no dtype; there are {', '.join(_DTYPES)}"
                    f"{did_you_mean(name, _DTYPES)}"
                )

    def _check_known(
        self, table: Mapping[str, object], known: Sequence[str], path: str
    ) -> None:
        """Fail if a key of a table is none of the `known` names."""
        for key in table:
            if key not in known:
                wanted = f"; wanted one of {', '.join(known)}"
                self.fail(
                    f"unknown entry {path}.{key}{did_you_mean(key, known) or wanted}"
                )

    def _check_names(self, table: Mapping[str, object], kind: type, path: str) -> None:
        known = [each.name for each in fields(kind)]
        needed = [
            each.name
            for each in fields(kind)
            if each.default is MISSING and each.default_factory is MISSING
        ]
        self._check_known(table, known, path)
        missing = [key for key in needed if key not in table]
        if missing:
            self.fail(f"[{path}] lacks {', '.join(missing)}")

    def _made[T](self, kind: type[T], values: dict[str, Any], path: str) -> T:
        try:
            return kind(**values)
        except MachineError as error:
            raise MachineError(f"machine {self.name!r}: {path}: {error}") from None
