"""Estimates of the TPU compiler's scheduler, against its log of single collectives."""

import pytest

from meshwright.machine import load_machine
from meshwright.predict.links.scheduler_estimate import scheduler_estimate_s

LOGGED = [
    # chip, chips, kind, group, GB/s of the whole value
    ("v4", 8, "all_reduce", 4, 44.8),
    ("v4", 16, "all_gather", 8, 102.4),
    ("v5e", 8, "all_gather", 4, 93.3),
    ("v5e", 16, "all_gather", 16, 93.3),
    ("v5e", 8, "all_reduce", 4, 46.7),
    ("v5e", 8, "all_reduce", 8, 93.3),
    ("v5e", 8, "all_to_all", 8, 26.7),
    ("v5e", 16, "all_to_all", 16, 24.9),
    ("v5e", 8, "permute", 8, 46.7),
    ("v5p", 8, "all_gather", 4, 248.9),
    ("v5p", 16, "all_gather", 8, 213.4),
    ("v5p", 8, "all_reduce", 8, 280.0),
    ("v5p", 8, "all_to_all", 4, 124.5),
    ("v6e", 16, "all_gather", 16, 199.1),
    ("v6e", 8, "all_reduce", 4, 93.4),
    ("v6e", 16, "all_reduce", 16, 186.7),
    ("v6e", 8, "all_to_all", 4, 62.2),
]


@pytest.mark.parametrize("row", LOGGED, ids=lambda row: f"{row[2]}-{row[0]}-{row[3]}")
def test_estimates_are_those_of_the_schedulers_log(row):
    chip, chips, kind, group, told = row
    machine = load_machine(f"tpu-{chip}", chips)
    seconds = scheduler_estimate_s(kind, 1e9, group, machine)
    assert 1 / seconds == pytest.approx(told, rel=2e-3)


def test_kinds_and_machines_without_estimates_give_none():
    v5e = load_machine("tpu-v5e", 8)
    assert scheduler_estimate_s("reduce_scatter", 1e9, 8, v5e) is None
    assert scheduler_estimate_s("all_reduce", 1e9, 1, v5e) is None
    assert scheduler_estimate_s("all_reduce", 1e9, 8, load_machine("h100", 8)) is None
