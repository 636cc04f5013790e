"""Breadth-first schedule: the order in which XLA's CPU compiler runs fusions.

XLA: `BFScheduler`. Independent fusions become neighbours, so that threads can run them
at the same time. The order takes more memory, because values that depend only on
arguments are computed at the start.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.program.ir import Program, Value


def breadth_first(fusions: Sequence[Fusion], program: Program) -> list[Fusion]:
    """Sort fusions by the time at which their last operand becomes available.

    All-reduces over the same devices that do not depend on each other are launched
    together.
    """
    groups = _launch_groups(fusions)
    num_missing = [0] * len(fusions)
    readers: dict[Value, list[int]] = {}
    members: dict[int, list[int]] = {}
    for index, (fusion, group) in enumerate(zip(fusions, groups, strict=True)):
        members.setdefault(group, []).append(index)
        for value in dict.fromkeys(fusion.reads):
            readers.setdefault(value, []).append(index)
            num_missing[group] += 1
    ready: deque[Value | int] = deque((*program.inputs, *program.constants))
    ready.extend(g for g in members if not num_missing[g])
    made: set[Value] = {v for v in ready if isinstance(v, Value)}
    made.update(v for fusion in fusions for v in fusion.writes)
    outside = [v for v in readers if v not in made]
    ready.extendleft(reversed(outside))
    order: list[Fusion] = []
    while ready:
        next_ = ready.popleft()
        if isinstance(next_, Value):
            written: Sequence[Value] = (next_,)
        else:
            launched = [fusions[i] for i in members[next_]]
            order.append(launched[0])
            order.extend(replace(fusion, is_joined=True) for fusion in launched[1:])
            written = [v for fusion in launched for v in fusion.writes]
        for value in written:
            for index in readers.get(value, ()):
                group = groups[index]
                num_missing[group] -= 1
                if not num_missing[group]:
                    ready.append(group)
    assert len(order) == len(fusions), "fusions wait for each other"
    return order


def _launch_groups(fusions: Sequence[Fusion]) -> list[int]:
    """Indices, one per fusion, of the first fusion that is launched together with it.

    All-reduces are launched together if they have equal dtypes and parameters, and if
    the longest chains of dependencies before them contain equally many all-reduces.
    """
    depth: dict[Value, int] = {}
    first: dict[tuple[int, str], int] = {}
    leaders: list[int] = []
    for index, fusion in enumerate(fusions):
        above = max((depth.get(v, 0) for v in fusion.reads), default=0)
        is_reduction = fusion.root.kind == "all_reduce"
        depth.update(dict.fromkeys(fusion.writes, above + is_reduction))
        if is_reduction:
            key = above, f"{fusion.root.results[0].dtype} {fusion.root.params}"
            index = first.setdefault(key, index)
        leaders.append(index)
    return leaders
