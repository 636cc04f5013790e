"""Spaces in files, as `path.py[:name]`: a function that returns what to search.

The function returns a `nas.Space`, and the module's `evaluate` gives the figures of a
candidate; or it returns both, (space, evaluate). `evaluate` is a function, or a
`nas.Trained`. The module's `baseline`, a candidate, is tried first if there is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from meshwright.app.step.load_module import load_module
from meshwright.errors import TargetError, did_you_mean
from meshwright.features.codesign.nas.searching.trained import (
    Trained,
    machine_identity,
)
from meshwright.search.trials import Candidate, Space


@dataclass(frozen=True)
class SpaceFile:
    """A space in a file; it can be sent to worker processes, which load the file.

    text: path.py[:name]. machine: given to a `Trained` that names none.
    """

    text: str
    machine: str = ""

    @cached_property
    def _found(self) -> tuple[Space, Callable[..., Any], Candidate | None]:
        place, _, name = self.text.rpartition(":")
        if not place or name.endswith(".py"):
            place, name = self.text, ""
        module = load_module(place)
        made = _function(module, place, name)()
        space, evaluate = made if isinstance(made, tuple) else (made, None)
        evaluate = evaluate or getattr(module, "evaluate", None)
        if not isinstance(space, Space):
            raise TargetError(f"{self.text} returned {space!r:.60}; wanted a nas.Space")
        if not callable(evaluate):
            raise TargetError(
                f"{place} has no `evaluate`, a function from a candidate to its figures or "
                "a nas.Trained; define it, or return (space, evaluate)"
            )
        if isinstance(evaluate, Trained):
            own, given = map(machine_identity, (evaluate.machine, self.machine))
            if own and given and own != given:
                raise TargetError(
                    f"{place} prices models on {evaluate.machine}, and the machine given "
                    f"is {self.machine}: leave `machine` out in its nas.Trained"
                )
            evaluate = replace(evaluate, machine=evaluate.machine or self.machine)
        return space, evaluate, getattr(module, "baseline", None)

    @property
    def space(self) -> Space:
        """The space."""
        return self._found[0]

    @property
    def evaluate(self) -> Callable[..., Any]:
        """The function from a candidate to its figures."""
        return self._found[1]

    @property
    def first(self) -> tuple[Candidate, ...]:
        """The baseline, if the file has one."""
        baseline = self._found[2]
        return () if baseline is None else (baseline,)

    @property
    def proxy_names(self) -> tuple[str, ...]:
        """Names of the proxies among the figures."""
        return tuple(getattr(self.evaluate, "proxy_names", ()))

    @property
    def identity(self) -> dict[str, Any]:
        """The conditions of the figures, besides the candidate: the machine, at least."""
        found = dict(getattr(self.evaluate, "identity", {}))
        return found or {"machine": machine_identity(self.machine)}

    @property
    def path(self) -> Path:
        """The file, or the module's name if it is none."""
        return Path(self.text.rpartition(":")[0] or self.text)

    def __call__(self, candidate: Candidate, **more: Any) -> Any:
        """The figures of a candidate."""
        return self.evaluate(candidate, **more)

    def __reduce__(self) -> Any:
        return SpaceFile, (self.text, self.machine)


def _function(module: Any, place: str, name: str) -> Callable[[], Any]:
    """The function of that name, or the one that returns a space."""
    functions = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not key.startswith("_")
        and not inspect.signature(value).parameters
    }
    if name:
        if name not in functions:
            hint = did_you_mean(name, functions)
            raise TargetError(
                f"{place} has no function {name!r} without parameters{hint}"
            )
        return functions[name]
    if "space" in functions or len(functions) == 1:
        return functions.get("space") or next(iter(functions.values()))
    names = ", ".join(functions) or "none"
    raise TargetError(
        f"{place} has several functions or none ({names}); name one, as {place}:space"
    )
