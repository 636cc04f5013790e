"""The solver process: it solves as this process would, and its death is an error."""

import os
import signal

import pytest

import meshwright as mw
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.prices.value_roles import EXPOSED, Role, exposed_by_role
from meshwright.planner.solve import solver_process
from meshwright.planner.solve.solver_process import SolveRequest, SolverProcess
from meshwright.predict.compilers.tpu.tpu_passes import TPU
from meshwright.predict.estimate import estimate
from meshwright.search.work import WorkMeter
from tests.planner.programs import DEEP, MESH, MLP, space_of


def test_the_result_is_that_of_solving_in_this_process():
    request = SolveRequest(space_of(MLP).price(Mesh(MESH)).pricer, None, 20.0, 10)
    with SolverProcess() as solver:
        assert solver.submit(request).result().optimum == request.solve(WorkMeter())


def test_the_death_of_the_process_is_an_error_with_its_status():
    request = SolveRequest(space_of(MLP).price(Mesh(MESH)).pricer, None, 20.0, 10)
    with SolverProcess() as solver:
        solver._process.kill()
        with pytest.raises(PlanError, match="process ended with status -9"):
            solver.submit(request).result()


def test_files_of_the_users_folder_hide_no_module_of_the_library(tmp_path, monkeypatch):
    for name in ("queue", "pickle", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    request = SolveRequest(space_of(MLP).price(Mesh(MESH)).pricer, None, 20.0, 10)
    with SolverProcess() as solver:
        found = solver.submit(request).result(timeout=120).optimum
    assert found == request.solve(WorkMeter())


def test_a_process_that_does_not_answer_is_an_error(monkeypatch):
    monkeypatch.setattr(solver_process, "_GRACE_S", 1.0)
    pricer = space_of(MLP).price(Mesh(MESH)).pricer
    request = SolveRequest(pricer, None, 0.5, 10, net_at=0.0)  # long past
    with SolverProcess() as solver:
        os.kill(solver._process.pid, signal.SIGSTOP)
        with pytest.raises(PlanError, match="had not answered after 1 s"):
            solver.submit(request).result(timeout=60)


def test_shares_are_of_what_can_hide():
    """Data parallelism alone reduces gradients, which a TPU does not do beside."""
    space, mesh = space_of(DEEP), Mesh(MESH)

    def shares(*tactics):
        decided = decide(space.captured, mesh, tactics, Gather.SHARED)
        found = estimate(decided, space.machine)
        return exposed_by_role(found.program, found.timeline, TPU.async_collectives)

    data = mw.data_parallel("data")
    assert shares(data) == {}
    sharded = shares(data, mw.zero(3, "data"))
    assert {Role.WEIGHT, Role.GRADIENT} <= sharded.keys() <= EXPOSED.keys()
    assert all(0 < share <= 1 for share in sharded.values())
