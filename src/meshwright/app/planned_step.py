"""`PlannedStep`: what a user can do with a plan of any kind, on one mesh or a pipeline."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Self

from meshwright.app.explain.candidates import TITLES, candidate_table
from meshwright.app.output.files import output_file, write_file
from meshwright.app.output.table import Table
from meshwright.app.record.step_record import StepRecord, require_plans
from meshwright.errors import PlanError
from meshwright.machine import Machine
from meshwright.predict.energy import Location


@dataclass(frozen=True)
class PlannedStep(StepRecord):
    """A plan: the data of a step, and methods to print, save, draw and compare it."""

    # -- what each kind of plan has --------------------------------------------------------

    @property
    @abstractmethod
    def code(self) -> str:
        """Python code that makes this plan again."""

    @abstractmethod
    def on(
        self,
        machine: Machine | str,
        place: Location | str | None = None,
        donate_state: bool = False,
    ) -> Self:
        """This plan with the time, memory, energy and cost of a step on a machine."""

    @abstractmethod
    def describe(self, full: bool = False) -> str:
        """The plan as a page of text; `print(plan)` shows it.

        full: give each layer its own line, even if several layers are equal.
        """

    @abstractmethod
    def to_json(self) -> str:
        """JSON text of the plan, without the program; `from_json` is the inverse."""

    # -- what all plans can do -------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the text of `to_json` into a file; `PlanError` if it cannot be written."""
        write_file(output_file(path), self.to_json().encode())

    def trace(
        self, path: str | PathLike[str], others: Sequence[StepRecord] = ()
    ) -> None:
        """Write a simulated step as trace events for Perfetto.

        others: plans whose steps appear below this one.
        Raises `PlanError` for a plan without figures of a machine (see `on`), and if the
        file cannot be written.
        """
        from meshwright.app.report.trace_events import write_trace  # rarely used

        write_trace((self, *require_plans(others)), path)

    def report(
        self, path: str | PathLike[str], others: Sequence[StepRecord] = ()
    ) -> None:
        """Write an HTML page about a simulated step into one file.

        others: plans with which the page compares this one.
        Raises `PlanError` for a plan without figures of a machine (see `on`), and if the
        file cannot be written.
        """
        from meshwright.app.report.page import write_report  # rarely used

        write_report(self, path, require_plans(others))

    def __str__(self) -> str:
        return self.describe()

    @property
    def candidate_rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows of the table `candidates`; none for a plan that no search found."""
        if self.search is None:
            return self.recorded_candidates
        return candidate_table(self.search).rows

    @property
    def candidates(self) -> Table:
        """The plans that the search simulated, as a table; see `search` for their data.

        A loaded plan has the table, but no `search`. Raises `PlanError` for a plan that no
        search found.
        """
        rows = self.candidate_rows
        if not rows:
            raise PlanError(
                "this plan was made of given tactics; only a plan that mw.autoplan found "
                "has candidates"
            )
        return Table(TITLES, rows)
