"""Prices of collectives as lines over bytes, against the functions that simulation uses."""

import pytest

from meshwright.machine import Mesh, load_machine
from meshwright.machine.placement import place_mesh
from meshwright.planner.prices.resharding import collective_lines
from meshwright.planner.prices.value_roles import Role
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.links.collective import COLLECTIVE_S

WAITS = dict.fromkeys(Role, 1.0)  # a step waits for all of a collective


@pytest.mark.parametrize("name", ["h100", "tpu-v5e"])
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all"])
def test_a_line_is_the_collective_of_which_it_pays_the_whole_latency(name, kind):
    """Of combined collectives, one as large as all that run together pays all of it.

    The next op waits for a collective of another role, which therefore starts alone.
    """
    machine = load_machine(name, 8)
    placement = place_mesh(Mesh({"data": 8}), machine)
    compiler = compiler_of(machine)
    line = collective_lines(placement, compiler, WAITS)
    start_s, byte_s = line(kind, ("data",), Role.GRADIENT)
    is_combined = kind in compiler.combined
    size = compiler.combined_bytes if is_combined else 2**20
    exact_s = COLLECTIVE_S[kind](size, placement.of(("data",)))
    assert start_s + byte_s * size == pytest.approx(exact_s)
    assert (start_s == 0) == is_combined
    exact_s = COLLECTIVE_S[kind](0.0, placement.of(("data",)))
    assert line(kind, ("data",), Role.OTHER)[0] == pytest.approx(exact_s)
