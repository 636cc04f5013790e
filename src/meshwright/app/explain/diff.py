"""The differences of two plans, such as a saved one and a newly made one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.app.output.collapse import collapsed
from meshwright.app.output.numbers import show_seconds, show_share
from meshwright.app.output.table import columns
from meshwright.app.record.parts import Leaf
from meshwright.app.record.plan_record import PlanRecord
from meshwright.errors import PlanError
from meshwright.machine.memory_size import show_bytes
from meshwright.program.ir import Sharding

_NONE = "-"


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The differences of two plans, printed as one line each.

    rows: triples (name of the property, its text in the first plan, in the second plan).
    """

    rows: tuple[tuple[str, str, str], ...]

    @property
    def is_equal(self) -> bool:
        """Whether the two plans have equal shardings, collective counts and figures."""
        return not self.rows

    def __str__(self) -> str:
        if self.is_equal:
            return "the plans are equal"
        rows = [(what, f"{old} -> {new}") for what, old, new in self.rows]
        width = max(len(what) for what, _ in rows)
        return "\n".join(collapsed(columns(rows, (str(width), ""), gap="  ")))

    def to_json(self) -> dict[str, Any]:
        """The differences as plain data for `json.dumps`."""
        return {"equal": self.is_equal, "rows": [list(row) for row in self.rows]}


def diff(first: PlanRecord, second: PlanRecord) -> PlanDiff:
    """The differences of two plans: mesh, shardings of arguments, collectives, figures."""
    for plan in (first, second):
        if not isinstance(plan, PlanRecord):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"{plan!r:.60} is no plan; mw.Plan.load(path) reads a file")
    return PlanDiff(tuple(row for row in _rows(first, second) if row[1] != row[2]))


def _rows(a: PlanRecord, b: PlanRecord) -> Iterator[tuple[str, str, str]]:
    yield "mesh", str(a.mesh), str(b.mesh)
    yield "gather", a.gather.value, b.gather.value
    for what, old, new in (
        ("collectives", _texts(a.counts), _texts(b.counts)),
        ("argument", _shardings(a.inputs), _shardings(b.inputs)),
        ("result", _shardings(a.outputs), _shardings(b.outputs)),
        ("", _figures(a), _figures(b)),
    ):
        for name in dict.fromkeys((*old, *new)):
            yield f"{what} {name}".strip(), old.get(name, _NONE), new.get(name, _NONE)


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    return {kind: str(count) for kind, count in counts.items()}


def _shardings(leaves: Sequence[Leaf]) -> dict[str, str]:
    return {leaf.path: str(Sharding(leaf.spec)) for leaf in leaves}


def _figures(plan: PlanRecord) -> dict[str, str]:
    figures = plan.figures
    if figures is None:
        return {}
    return {
        "machine": f"{figures.num_devices} devices of {figures.machine}",
        "step time": show_seconds(figures.step_time_s),
        "MFU": show_share(figures.mfu),
        "peak memory": show_bytes(figures.peak_memory_bytes),
    }
