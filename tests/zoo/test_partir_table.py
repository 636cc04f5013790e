"""Collectives per schedule, as Table 3 of PartIR counts them."""

from dataclasses import replace

import pytest

import meshwright as mw
from zoo import gpt

MESH = mw.Mesh({"batch": 8, "model": 4})

TABLE = {
    "bp": (0, 290, 0, 0),
    "mp": (0, 128, 0, 0),
    "bp+mp": (0, 418, 0, 0),
    "bp+mp+z2": (129, 289, 129, 0),
    "bp+mp+z3": (259, 289, 129, 0),
    "emb": (256, 193, 128, 0),
    "bp+mp+z3+emb": (515, 354, 257, 0),
}

CLOSED_FORMS = {
    "bp": lambda n: (0, 9 * n + 2, 0, 0),
    "mp": lambda n: (0, 4 * n, 0, 0),
    "bp+mp": lambda n: (0, 13 * n + 2, 0, 0),
    "bp+mp+z2": lambda n: (4 * n + 1, 9 * n + 1, 4 * n + 1, 0),
    "bp+mp+z3": lambda n: (8 * n + 3, 9 * n + 1, 4 * n + 1, 0),
    "emb": lambda n: (8 * n, 6 * n + 1, 4 * n, 0),
    "bp+mp+z3+emb": lambda n: (16 * n + 3, 11 * n + 2, 8 * n + 1, 0),
}


def collectives(schedule, layers):
    """(gathers, all-reduces, reduce-scatters, all-to-alls) of a step with `layers`."""
    tactics = gpt.schedules[schedule]
    step = mw.partition(gpt.train_step, MESH, tactics, gather="at_use")
    counts = step.plan(*gpt.shapes(replace(gpt.T32, layers=layers))).counts
    assert counts["permute"] == 0
    kinds = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
    return tuple(counts[kind] for kind in kinds)


@pytest.mark.parametrize("schedule", TABLE)
def test_the_closed_forms_give_the_table_at_32_layers(schedule):
    assert CLOSED_FORMS[schedule](32) == TABLE[schedule]


@pytest.mark.parametrize("schedule", TABLE)
def test_a_schedule_costs_what_its_closed_form_says(schedule):
    assert collectives(schedule, 2) == CLOSED_FORMS[schedule](2)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", TABLE)
def test_t32_costs_what_the_table_says(schedule):
    assert collectives(schedule, 32) == TABLE[schedule]
