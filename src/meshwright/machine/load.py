"""Machines from TOML: the presets of Meshwright, and the user's own files.

A new chip is a new file in `machine/presets`. A number is written alone or with its source:

    hbm_bytes_per_s = { value = 819e9, source = "Cloud TPU documentation, v5e" }

Every number of a preset has a source. The name of an entry ends with its unit.
"""

import tomllib
from importlib import resources
from pathlib import Path

from meshwright.errors import MachineError, did_you_mean
from meshwright.machine.description import DescriptionReader
from meshwright.machine.machine import Level, Machine, make_grid
from meshwright.plain import read_text


def preset_names() -> tuple[str, ...]:
    """Sorted names of the machines that Meshwright knows, such as for `machine(name)`.

    Each is a TOML file in `machine/presets`.
    """
    folder = resources.files("meshwright.machine") / "presets"
    names = (each.name for each in folder.iterdir())
    return tuple(sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml")))


def machine(name: str | Path, *, chips: int = 1) -> Machine:
    """A machine by the name of a preset or TOML file, with the given number of chips.

    TPU v2, v3 and 7x have two devices per chip. Raises `MachineError` as
    `load_machine`.
    """
    return load_machine(name, None, chips)


def load_machine(
    name: str | Path, num_devices: int | None = 1, chips: int = 1
) -> Machine:
    """A machine by the name of a preset or TOML file, with `num_devices` devices.

    num_devices: devices as JAX counts them; `None` for all devices of `chips` chips.

    Raises `MachineError` for an unknown name, a description with a missing, negative or
    unknown entry, or a number of devices that no such machine has.
    """
    if str(name).endswith(".toml"):
        path = Path(name)
        text = read_text(path, MachineError, "a machine")
        return parse_machine(text, path.stem, num_devices, chips)
    if name not in preset_names():
        given = str(name) if isinstance(name, Path) else name
        spelled = str(name).lower().replace(" ", "-").replace("_", "-")
        hint = _hint(spelled)
        raise MachineError(
            f"there is no machine {given!r:.60}{hint}; there are "
            f"{', '.join(preset_names())}, or give a file that ends in .toml"
        )
    preset = resources.files("meshwright.machine") / "presets" / f"{name}.toml"
    text = preset.read_text(encoding="utf-8")
    return parse_machine(text, str(name), num_devices, chips)


def _hint(spelled: str) -> str:
    """What to write in place of an unknown name; chips are not a part of it.

    Names such as v4-8 count cores in Google's documentation, so none are guessed at.
    """
    name, dash, number = spelled.rpartition("-")
    if dash and number.isdecimal() and name in preset_names():
        return f"; chips are given apart, as in machine={name!r}, chips={number}"
    return did_you_mean(spelled, preset_names())


def parse_machine(
    text: str, name: str, num_devices: int | None, chips: int = 1
) -> Machine:
    """The machine that a TOML text describes; `name` is used if the text gives no name.

    num_devices: devices as JAX counts them; `None` for all devices of `chips` chips.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"machine {name!r}: {error}") from None
    given = table.get("name", name)
    reader = DescriptionReader(given if isinstance(given, str) else name)
    entries = reader.read(table)
    levels: tuple[Level, ...] = entries.setdefault("levels", ())
    per_chip: int = entries.get("devices_per_chip", 1)
    num_devices = reader.device_count(num_devices, chips, per_chip)
    entries["title"] = entries.get("title") or reader.name
    entries["name"] = reader.name
    if num_devices > 1:
        entries["chip"] = entries["chip"].waiting()
    return Machine(
        num_devices=num_devices,
        grid=make_grid(reader.name, levels, num_devices),
        sources=reader.sources,
        **entries,
    )
