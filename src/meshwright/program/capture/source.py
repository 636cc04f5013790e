"""Source lines of ops, from the tracebacks that JAX keeps with its equations."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from meshwright.jax_private import scope_names

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep


@cache
def _is_library(path: str) -> bool:
    """Whether a file belongs to an installed package, Python itself or Meshwright."""
    return (
        "site-packages" in path
        or "dist-packages" in path
        or path.startswith((_PACKAGE, _STDLIB, "<frozen"))
    )


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The source line of an op, which prints as `file:line`.

    The line is looked up only when it is printed, which saves time.
    outer: source of the call from which the op was inlined. JAX cuts tracebacks at a
        jit, so that only the call of `jnp.take` knows the user's line, not the ops
        inside of it.
    name_stack: JAX's stack of names around the op, such as those of flax modules.
    """

    traceback: Any
    outer: Source | None = None
    name_stack: Any = None

    @property
    def scope(self) -> tuple[str, ...]:
        """Names around the op, outermost first: of flax modules and `jax.named_scope`s."""
        outer = self.outer.scope if self.outer is not None else ()
        return outer + (scope_names(self.name_stack) if self.name_stack else ())

    def __str__(self) -> str:
        user, library = _locate(self.traceback)
        if user:
            return _shorten(user)
        return (str(self.outer) if self.outer else "") or _shorten(library)

    def __bool__(self) -> bool:
        return bool(str(self))


@lru_cache(maxsize=1 << 14)  # equal layers have equal tracebacks
def _locate(traceback: Any) -> tuple[str, str]:
    """The innermost source line in the user's code, and in libraries other than JAX.

    Each is "" if the traceback has no such line.
    """
    if traceback is None:
        return "", ""
    fallback = ""
    for code, last in zip(*traceback.raw_frames(), strict=True):
        path = code.co_filename
        if not _is_library(path):
            return f"{path}:{_line(traceback, code, last)}", fallback
        if not fallback and f"{os.sep}jax{os.sep}" not in path and _PACKAGE not in path:
            fallback = f"{path}:{_line(traceback, code, last)}"
    return "", fallback


def _line(traceback: Any, code: Any, last: int) -> int:
    return type(traceback).code_addr2line(code, last)


def _shorten(path: str) -> str:
    """The path relative to the working directory, if the file is inside of it."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path
