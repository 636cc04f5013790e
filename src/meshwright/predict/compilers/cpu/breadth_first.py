"""The order in which XLA's CPU compiler runs units: breadth first.

So that independent work stands side by side for its threads (XLA's `BFScheduler`), at the
price of memory: what depends on arguments alone is made at the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from meshwright.predict.compilers.xla.fusion import Fusion
from meshwright.program.ir import Program, Value


def breadth_first(units: Sequence[Fusion], program: Program) -> tuple[Fusion, ...]:
    """The units, each queued when the last of what it reads is there.

    All-reduces over the same devices that do not need each other run as one.
    """
    groups = _groups(units)
    waits = [0] * len(units)
    readers: dict[Value, list[int]] = {}
    for index, unit in enumerate(units):
        for value in dict.fromkeys(unit.reads):
            readers.setdefault(value, []).append(index)
            waits[groups[index]] += 1
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    ready: deque[Value | int] = deque((*program.inputs, *program.constants))
    ready.extend(g for g in members if not waits[g])
    made: set[Value] = {v for v in ready if isinstance(v, Value)}
    made.update(v for unit in units for v in unit.writes)
    outside = [v for v in readers if v not in made]
    ready.extendleft(reversed(outside))
    found: list[Fusion] = []
    while ready:
        next_ = ready.popleft()
        if isinstance(next_, Value):
            written: Sequence[Value] = (next_,)
        else:
            run = [units[i] for i in members[next_]]
            found.append(run[0])
            found.extend(replace(unit, is_joined=True) for unit in run[1:])
            written = [v for unit in run for v in unit.writes]
        for value in written:
            for index in readers.get(value, ()):
                group = groups[index]
                waits[group] -= 1
                if not waits[group]:
                    ready.append(group)
    assert len(found) == len(units), "units wait for each other"
    return tuple(found)


def _groups(units: Sequence[Fusion]) -> list[int]:
    """By unit, the first of those that it runs as one with.

    All-reduces are one if they are alike, and as many others come before each.
    """
    depth: dict[Value, int] = {}
    first: dict[tuple[int, str], int] = {}
    found: list[int] = []
    for index, unit in enumerate(units):
        above = max((depth.get(v, 0) for v in unit.reads), default=0)
        is_reduction = unit.root.kind == "all_reduce"
        depth.update(dict.fromkeys(unit.writes, above + is_reduction))
        if is_reduction:
            key = above, f"{unit.root.results[0].dtype} {unit.root.params}"
            index = first.setdefault(key, index)
        found.append(index)
    return found
