"""The folder of a search that can be resumed."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from meshwright.app.output.files import make_folder
from meshwright.errors import FloorplanError

type Saved = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with the state of a search (`search.npz`) and its best placement.

    The state is one file, so that its parts always belong together.
    """

    folder: Path

    @property
    def best(self) -> Path:
        return self.folder / "best.plc"

    @property
    def _state(self) -> Path:
        return self.folder / "search.npz"

    def load(
        self, identity: dict[str, Any]
    ) -> tuple[dict[str, Any], list[Saved], Saved | None] | None:
        """Facts, walkers and source of the search that was saved; `None` if none was.

        identity: what a search must have in common with the one that it resumes; its
            entry `contents` has digests by name.
        """
        if not self._state.exists():
            return None
        try:
            content = BytesIO(self._state.read_bytes())
            with np.load(content, allow_pickle=False) as file:
                facts = json.loads(str(file["facts"]))
                walkers = [_part(file, f"{i}/") for i in range(facts["walkers"])]
                source = _part(file, "source/") or None
            before = facts["identity"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as fault:
            raise FloorplanError(f"cannot resume from {self._state}: {fault}") from None
        advice = "resume it with the same, or name another folder"
        for name in {**identity, **before}:
            there, here = before.get(name), identity.get(name)
            if name != "contents" and there != here:
                raise FloorplanError(
                    f"{self.folder} holds a search with {name} {there!r}; this one has "
                    f"{here!r}: {advice}"
                )
        for name, value in identity["contents"].items():
            if before.get("contents", {}).get(name) != value:
                raise FloorplanError(
                    f"{self.folder} holds a search with another {name}: {advice}"
                )
        return facts, walkers, source

    def save(
        self, facts: dict[str, Any], walkers: list[Saved], source: Saved | None
    ) -> None:
        """Save facts, walkers, and what proposes placements, if anything does."""
        parts = {str(i): saved for i, saved in enumerate(walkers)}
        parts |= {} if source is None else {"source": source}
        arrays = {
            f"{part}/{name}": values
            for part, saved in parts.items()
            for name, values in saved.items()
        }
        part = self.folder / f".search.{os.getpid()}.npz"
        make_folder(self.folder, FloorplanError)
        try:
            np.savez(part, facts=np.array(json.dumps(facts)), **arrays)  # pyright: ignore[reportArgumentType]
            part.replace(self._state)
        except OSError as fault:
            raise FloorplanError(
                f"cannot write {self._state}: {fault.strerror}"
            ) from None


def _part(file: Mapping[str, np.ndarray], prefix: str) -> Saved:
    """The arrays whose names begin so, by the rest of their names."""
    names = [name for name in file if name.startswith(prefix)]
    return {name.removeprefix(prefix): file[name] for name in names}
