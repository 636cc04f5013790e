"""CP-SAT as an oracle: the lowest feasible offset of a buffer, and who is in conflict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.features.allocate.problem.sections import BufferColumns

_ASK, _EXPLAIN = 0.001, 0.01
"""Deterministic seconds of CP-SAT for a question, and for the reason of a refusal.

A question takes 0.03 s of CPU on MiniMalloc's suite, most of it to load the model.
"""


@dataclass(frozen=True, slots=True)
class LowestOffset:
    """CP-SAT's answer about one buffer.

    bound: the buffer is not lower in any packing that keeps the placements. packing: an
    offset per buffer if a whole packing was found. is_refuted: no packing keeps the
    placements.
    """

    bound: int
    packing: dict[int, int] | None = None
    is_refuted: bool = False


class OffsetSolver:
    """A model of `members` that keeps them apart pair by pair, and limits of offsets.

    Only buffers that are live together have a constraint. Each limit of an offset holds if
    a literal of its buffer does, so that CP-SAT can name the limits in conflict.
    """

    def __init__(
        self, columns: BufferColumns, members: Sequence[int], capacity: int, seed: int
    ) -> None:
        from ortools.sat.python import cp_model

        self._columns, self._members = columns, members
        self._solved = (cp_model.OPTIMAL, cp_model.FEASIBLE)
        self._refuted = cp_model.INFEASIBLE
        self._most = {i: (capacity - int(columns.size[i])) for i in members}
        self._model = cp_model.CpModel()
        self._steps = {i: self._new_offset(i) for i in members}
        self._holds = {i: self._model.new_bool_var("") for i in members}
        self._limits = {
            i: self._model.add_linear_constraint(self._steps[i], 0, self._most[i])
            for i in members
        }
        for i in members:
            self._limits[i].only_enforce_if(self._holds[i])
        self._keep_apart()
        self._limited: set[int] = set()
        self._solver = cp_model.CpSolver()
        for name, value in (
            ("num_workers", 1),
            ("random_seed", seed % 2**31),
            ("cp_model_presolve", False),
            ("cp_model_probing_level", 0),
            ("symmetry_level", 0),
            ("linearization_level", 0),
            ("stop_after_first_solution", True),
            ("catch_sigint_signal", False),
        ):
            setattr(self._solver.parameters, name, value)

    def limit(self, buffer: int, least: int, most: int | None = None) -> None:
        """Allow a buffer offsets from `least` to `most`, or to the capacity."""
        align = int(self._columns.align[buffer])
        top = self._most[buffer] if most is None else most
        low, high = -(-least // align), top // align
        nowhere = -1
        if low > high:
            low = high = nowhere
        self._set_domain(buffer, low, high)
        self._limited.add(buffer)

    def release(self, buffer: int) -> None:
        """Take back the limit of a buffer's offset."""
        self._set_domain(buffer, 0, self._most[buffer])
        self._limited.discard(buffer)

    def lowest(self, buffer: int) -> LowestOffset:
        """The lowest offset of a buffer that CP-SAT does not exclude within its limit."""
        self._model.clear_assumptions()
        for i in self._members:
            self._set_literal(i, (1, 1))
        self._model.minimize(self._steps[buffer])
        status = self._run(_ASK)
        if status == self._refuted:
            return LowestOffset(0, is_refuted=True)
        if status in self._solved:
            packing = {
                i: int(self._columns.align[i]) * self._solver.value(step)
                for i, step in self._steps.items()
            }
            return LowestOffset(packing[buffer], packing)
        bound = max(0, round(self._solver.best_objective_bound))
        return LowestOffset(int(self._columns.align[buffer]) * bound)

    def conflict(self) -> frozenset[int]:
        """Buffers whose limits no packing keeps; all limited ones if time is short."""
        self._model.clear_objective()
        for i in self._members:
            self._set_literal(i, (0, 1))
        self._model.clear_assumptions()
        limited = sorted(self._limited)
        self._model.add_assumptions([self._holds[i] for i in limited])
        if self._run(_EXPLAIN) != self._refuted:
            return frozenset(limited)
        by_literal = {self._holds[i].index: i for i in limited}
        named = self._solver.sufficient_assumptions_for_infeasibility()
        return frozenset(by_literal[index] for index in named)

    def _run(self, seconds: float) -> Any:
        self._solver.parameters.max_deterministic_time = seconds
        return self._solver.solve(self._model)

    def _new_offset(self, i: int) -> Any:
        """The variable of a buffer's offset over its alignment, apart from fixed memory."""
        from ortools.sat.python import cp_model

        c, size = self._columns, int(self._columns.size[i])
        align = int(c.align[i])
        steps: list[tuple[int, int]] = []
        start = 0
        for low, high in c.blocks(i):
            steps.append((-(-start // align), (low - size) // align))
            start = high
        steps.append((-(-start // align), self._most[i] // align))
        free = [[low, high] for low, high in steps if low <= high]
        return self._model.new_int_var_from_domain(
            cp_model.Domain.from_intervals(free), ""
        )

    def _keep_apart(self) -> None:
        """Put each buffer below or above each that is live together with it."""
        c = self._columns
        ends = {i: int(c.align[i]) * step for i, step in self._steps.items()}
        for i in self._members:
            for j in c.neighbours(i):
                if j > i:
                    below = self._model.new_bool_var("")
                    for a, b, holds in ((i, j, below), (j, i, ~below)):
                        apart = self._model.add(ends[a] + int(c.size[a]) <= ends[b])
                        apart.only_enforce_if(holds)

    def _set_domain(self, buffer: int, low: int, high: int) -> None:
        domain = self._limits[buffer].proto.linear.domain
        domain.clear()
        domain.extend([low, high])

    def _set_literal(self, buffer: int, values: tuple[int, int]) -> None:
        domain = self._model.proto.variables[self._holds[buffer].index].domain
        domain.clear()
        domain.extend(values)
