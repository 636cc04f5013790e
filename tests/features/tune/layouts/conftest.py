"""The program that searches for layouts are tested on, and its sites."""

import pytest

from meshwright.features.tune.layouts.sites import find_sites
from tests.features.tune.layouts.fake_judge import decided


@pytest.fixture
def program_and_sites():
    made = decided()
    program = made.lowered.program
    return program, {s.name: s for s in find_sites(program, made.captured.paths)}
