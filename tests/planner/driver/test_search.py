"""The phases of a search, and the description of its options."""

import inspect

import pytest

import meshwright as mw
from meshwright.planner.driver.search import PHASES, SearchPhase, run_phases
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.solve.solver_process import SolverProcess
from tests.planner.programs import MESH, MLP, space_of


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.run.__name__)
def test_every_phase_says_what_it_reads_and_writes(phase):
    text = inspect.getdoc(phase.run)
    assert "Reads " in text
    assert "rites " in text


def test_phases_run_in_order_if_their_condition_holds(monkeypatch):
    names = []

    def noted(name):
        return lambda state: names.append(name) or state

    phases = (
        SearchPhase(noted("first")),
        SearchPhase(noted("small"), when=lambda state: state.may_fit),
        SearchPhase(noted("last"), when=lambda state: not state.may_fit),
    )
    monkeypatch.setattr("meshwright.planner.driver.search.PHASES", phases)
    task = SearchTask(space_of(MLP), (mw.Mesh(MESH),), 1e9, lambda seconds, _: seconds)
    with SolverProcess() as solver:
        state = SearchState(task, solver, TimeBudget.of(1.0))
        assert run_phases(state) is state
    assert names == ["first", "last"]


def test_the_help_of_autoplan_describes_every_option():
    text = inspect.getdoc(mw.autoplan)
    options = set(inspect.signature(mw.autoplan).parameters) - {"fn"}
    assert [name for name in options if f"\n{name}: " not in text] == []
