"""Multipliers from a folder: `NAME.npy` with the table, `NAME.toml` with the figures."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.approximate.library import exact
from meshwright.features.codesign.accelerator.approximate.multiplier import (
    Multiplier,
    MultiplierFigures,
)

_FIGURES = ("power", "area", "delay")


def read_multipliers(folder: Path) -> list[Multiplier]:
    """The multipliers of a folder, the exact one first.

    Figures are in any units. They become shares of those of the folder's exact table; if
    it has none, they are read as shares, and the exact multiplier is added. Hidden files
    are left out.
    """
    if not folder.is_dir():
        raise AcceleratorError(f"{folder} is no folder; wanted NAME.npy and NAME.toml")
    tables = sorted(folder.glob("[!.]*.npy"))
    for path in sorted(folder.glob("[!.]*.toml")):
        if path.with_suffix(".npy") not in tables:
            raise AcceleratorError(f"{path} has no table {path.stem}.npy beside it")
    if not tables:
        raise AcceleratorError(f"{folder} has no NAME.npy with a table of 256 x 256")
    found = [_read(path) for path in tables]
    signs = {each.signed for each in found}
    if len(signs) > 1:
        kinds = ", ".join(
            f"{m.name} {'signed' if m.signed else 'unsigned'}" for m in found
        )
        raise AcceleratorError(
            f"{folder} mixes tables: {kinds}; wanted all of one kind"
        )
    right = [m for m in found if m.wce == 0]
    if not right:
        return [exact(signs.pop()), *found]
    first = min(right, key=lambda m: (m.figures.power, m.name))
    rest = [m for m in found if m is not first]
    return [
        m.with_figures(m.figures.relative_to(first.figures)) for m in (first, *rest)
    ]


def write_multiplier(folder: Path, multiplier: Multiplier) -> None:
    """Write a multiplier as `read_multipliers` reads it."""
    path = folder / multiplier.name
    np.save(path.with_name(f"{multiplier.name}.npy"), multiplier.table)
    lines = [f"signed = {str(multiplier.signed).lower()}"] + [
        f"{name} = {getattr(multiplier.figures, name)!r}" for name in _FIGURES
    ]
    text = "\n".join(lines) + "\n"
    path.with_name(f"{multiplier.name}.toml").write_text(text, encoding="utf-8")


def _read(path: Path) -> Multiplier:
    try:
        table = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as fault:
        raise AcceleratorError(f"{path} is no readable .npy file ({fault})") from None
    about = path.with_suffix(".toml")
    try:
        data = tomllib.loads(about.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AcceleratorError(
            f"{path} has no {about.name} beside it; wanted power, area and delay in it"
        ) from None
    except (OSError, ValueError) as fault:
        raise AcceleratorError(f"{about} is no readable TOML file ({fault})") from None
    missing = [name for name in _FIGURES if name not in data]
    if missing:
        raise AcceleratorError(
            f"{about} lacks {', '.join(missing)}; wanted a number above 0 for each of "
            f"{', '.join(_FIGURES)}"
        )
    unknown = [name for name in data if name not in (*_FIGURES, "signed")]
    if unknown:
        allowed = ", ".join((*_FIGURES, "signed"))
        raise AcceleratorError(f"{about} has {', '.join(unknown)}; allowed: {allowed}")
    signed = data.get("signed")
    if signed is not None and not isinstance(signed, bool):
        raise AcceleratorError(f"{about}: signed is {signed!r}; wanted true or false")
    try:
        figures = MultiplierFigures(**{name: data[name] for name in _FIGURES})
    except AcceleratorError as fault:
        raise AcceleratorError(f"{about}: {fault}") from None
    try:
        return Multiplier.from_table(
            table, name=path.stem, signed=signed, figures=figures
        )
    except AcceleratorError as fault:
        raise AcceleratorError(f"{path}: {fault}") from None
