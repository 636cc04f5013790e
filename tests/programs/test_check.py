"""Every program, under every strategy that applies, gives the one-device numbers."""

import pytest

import meshwright as mw
from tests.programs.catalogue import MESH, PROGRAMS, tactics_of

CASES = [(program, name) for program in PROGRAMS for name in program.strategies]


@pytest.mark.parametrize(
    ("program", "strategy"), CASES, ids=[f"{p.name}, {name}" for p, name in CASES]
)
def test_the_partitioned_program_equals_the_original(program, strategy):
    fn, args = program.build()
    step = mw.partition(fn, mw.Mesh(MESH), tactics_of(strategy, program.inputs))
    report = step.check(*args)
    assert report.ok, str(report)
