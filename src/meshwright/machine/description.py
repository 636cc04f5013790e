"""Reading of a machine's TOML, entry by entry, with checks and errors that name it."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from meshwright.errors import MachineError
from meshwright.machine.accelerator import Accelerator
from meshwright.machine.chip import EFFICIENCY_CLASSES, Curve
from meshwright.machine.machine import Machine
from meshwright.plain import Prepare, Reader, hints_of

_DTYPES = (
    "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "int4",
    "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64",
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip


ENTRIES: Mapping[str, Any] = {
    name: hint
    for name, hint in hints_of(Machine).items()
    if name not in ("num_devices", "grid", "sources")
}
"""The entries of a machine's TOML with their types: the fields that it describes."""


class DescriptionReader:
    """Reads the parsed TOML of one machine, checks it, and words the errors.

    In each method, `path` is the dotted name of the entry, such as `chip.hbm_bytes`.

    name: the machine's name, for errors.
    sources: where each number comes from, by path; filled while entries are read.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources: dict[str, str] = {}
        prepare: Mapping[Any, Prepare] = {
            float: self._number,
            int: self._whole,
            tuple[int, ...]: self._value,
            tuple[int, int]: self._value,
            tuple[int, int, int]: self._value,
            Curve: lambda entry, path: {"points": self._value(entry, path)},
            Mapping[str, float]: self._keyed_by(_DTYPES),
            Mapping[str, Curve]: self._keyed_by(EFFICIENCY_CLASSES),
        }
        self._reader = Reader(self._error, prepare, table="a table")

    def read(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a parsed TOML, as fields of `Machine`; fails for a faulty one."""
        return self._reader.entries(ENTRIES, ("chip",), table, "")

    def read_accelerator(self, table: Mapping[str, Any]) -> Accelerator:
        """The table `[accelerator]` of a parsed TOML, which may have no `[chip]`."""
        known = {name: ENTRIES[name] for name in ("name", "title", "accelerator")}
        named = {n: e for n, e in table.items() if n in known or n not in ENTRIES}
        return self._reader.entries(known, ("accelerator",), named, "")["accelerator"]

    def fail(self, what: str) -> NoReturn:
        """Raise `MachineError` with the machine's name and the text `what`."""
        raise self._error("", what)

    def _error(self, path: str, fault: str | Exception) -> MachineError:
        place = f"[{path}]: " if path and isinstance(fault, Exception) else ""
        return MachineError(f"machine {self.name!r}: {place}{fault}")

    def _value(self, entry: Any, path: str) -> Any:
        """The value of an entry, which may be a table of a value and its source.

        The source is recorded in `sources`.
        """
        if isinstance(entry, Mapping):
            self._reader.check_names(entry, ("value", "source"), path)
            self.sources[path] = str(entry.get("source", ""))
            return entry.get("value")
        return entry

    def _number(self, entry: object, path: str) -> Any:
        """The entry, if it is a number of 0 or more, or none at all; else fails."""
        value = self._value(entry, path)
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            self.fail(f"{path} is {value}; wanted 0 or more")
        return value

    def _whole(self, entry: object, path: str) -> Any:
        """An entry as `_number` gives it; a number without fraction becomes an int."""
        value = self._number(entry, path)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def _keyed_by(self, known: Sequence[str]) -> Prepare:
        """A check that the keys of a table are names in `known`."""

        def prepare(entry: Any, path: str) -> Any:
            if isinstance(entry, Mapping):
                self._reader.check_names(entry, known, path)
            return entry

        return prepare

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
