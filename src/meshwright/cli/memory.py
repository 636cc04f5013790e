"""Refusal of targets that need more memory than this machine has."""

from __future__ import annotations

import os
from pathlib import Path

from meshwright.app.check.sample import argument_bytes, result_bytes
from meshwright.cli.target import Target
from meshwright.errors import TargetError
from meshwright.machine import Mesh

_COPIES = 4
"""Least memory in sizes of the arguments: inputs and outputs of both runs."""


def require_memory(target: Target, mesh: Mesh) -> None:
    """Raise `TargetError` if the arguments of a target alone do not fit in memory."""
    free = free_bytes()
    needed = _COPIES * argument_bytes(target.args)
    if free is None or needed <= free:
        return
    raise TargetError(
        f"{target.name} needs at least {_show(needed)} to run on one device and on "
        f"{mesh} side by side, and {_show(free)} are free; {_advise(target, free)}"
    )


def free_bytes() -> int | None:
    """Free memory of this machine in bytes; `None` if the system does not say."""
    known = Path("/proc/meminfo")
    if known.is_file():
        for line in known.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _advise(target: Target, free: int) -> str:
    """Advice: targets of the same module that fit, or smaller arguments."""
    place = target.name.rpartition(":")[0]
    sizes = {name: result_bytes(make) for name, make in target.others.items()}
    fitting = [
        f"{place}:{name}"
        for name, n in sizes.items()
        if n is not None and _COPIES * n <= free
    ]
    if fitting:
        return f"smaller: {', '.join(fitting)}"
    return "make its arguments smaller; `plan` and `explain` need no memory"


def _show(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
