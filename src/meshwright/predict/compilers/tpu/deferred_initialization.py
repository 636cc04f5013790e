"""Deferred initialization: buffers that are filled only to be written into.

An example is a cache of keys that starts as a broadcast of one number. The broadcast is
fused into the dynamic-update-slice that writes a slice of keys into it. This fusion reads
the small slice and writes the whole buffer. So the compiler schedules it as late as it can:
just before the first reader of the buffer, or before another value takes the buffer of the
slice. Until then only the slice is live.
"""

from collections.abc import Sequence

from meshwright.predict.compilers.model.fusion import Fusion
from meshwright.program.analysis.live_ranges import live_ranges
from meshwright.program.ir import Program, Value

UPDATE = "dynamic_update_slice"
"""The kind of op that also fills its buffer, unless the buffer already exists."""


def defer_updates(fusions: Sequence[Fusion], program: Program) -> Sequence[Fusion]:
    """The fusions, with those that fill their own buffer moved as late as possible."""
    del program
    late = {f for f in fusions if f.root.kind == UPDATE and f.in_place is None}
    if not late:
        return fusions
    first_use = live_ranges((f.reads, f.writes) for f in fusions).first_uses
    taken_at: dict[Value, int] = {}
    for index, fusion in enumerate(fusions):
        updated = (fusion.in_place,) if fusion.root.kind == UPDATE else ()
        for value in (*updated, *fusion.replaces.values()):
            if value is not None:
                taken_at[value] = index
    deferred_to: dict[int, list[Fusion]] = {}
    for index, fusion in enumerate(fusions):
        if fusion in late:
            ends = [first_use.get(v, len(fusions)) for v in fusion.writes]
            ends += [at for v in fusion.reads if (at := taken_at.get(v, 0)) > index]
            deferred_to.setdefault(min(ends, default=index), []).append(fusion)
    found: list[Fusion] = []
    for index, fusion in enumerate(fusions):
        found += deferred_to.get(index, ())
        if fusion not in late:
            found.append(fusion)
    return [*found, *deferred_to.get(len(fusions), ())]
