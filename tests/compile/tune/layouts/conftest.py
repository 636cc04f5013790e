"""The program that searches for layouts are tested on, and its sites."""

import pytest

from meshwright.compile.tune.layouts.sites import find_sites
from tests.compile.tune.layouts.fake_judge import decided


@pytest.fixture
def program_and_sites():
    made = decided()
    program = made.lowered.program
    return program, {s.name: s for s in find_sites(program, made.captured.paths)}
