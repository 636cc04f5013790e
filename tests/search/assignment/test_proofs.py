"""HiGHS in a process of its own: the time that it gets."""

import pickle
from types import SimpleNamespace

import pytest

from meshwright.search.assignment.solvers import proofs


def test_highs_gets_the_time_that_is_left_once_the_problem_is_linearised(monkeypatch):
    clock, inputs = SimpleNamespace(left_s=10.0), []

    def linearise(reduced, memory):
        clock.left_s -= 4
        return ()

    def start(*args, **options):
        def communicate(content):
            inputs.append(pickle.loads(content))
            return b"", b""

        return SimpleNamespace(communicate=communicate, kill=None, returncode=1)

    monkeypatch.setattr(proofs, "linearise_reduced", linearise)
    monkeypatch.setattr(proofs.subprocess, "Popen", start)
    incumbent = SimpleNamespace(
        clock=clock, stops=[], is_over=False, reduced=None, memory=None
    )
    proofs.prove(incumbent)
    assert inputs == [((), pytest.approx(6 - proofs._SPARE_S))]
