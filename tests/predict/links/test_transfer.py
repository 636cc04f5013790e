"""Seconds of transfers between groups of devices: closed forms by kind of link."""

import math
from dataclasses import replace

import pytest

from meshwright.machine import Mesh, load_machine
from meshwright.machine.machine import make_grid
from meshwright.machine.placement import place_mesh
from meshwright.predict.links.collective import permute_s
from meshwright.predict.links.transfer import busiest_bytes, transfer_s

SIZE = 1e8


def seconds(name, chips, first, second):
    return transfer_s(SIZE, range(*first), range(*second), load_machine(name, chips))


@pytest.mark.parametrize(
    ("name", "chips", "first", "second", "level", "rate"),
    [
        # Within a node the switch gives each device its own link.
        ("h100", 32, (0, 4), (4, 8), 0, 3.67e11),
        ("h100", 32, (0, 1), (7, 8), 0, 3.67e11),
        # Between nodes, and from the last devices of one to the first of the next.
        ("h100", 32, (0, 8), (8, 16), 1, 4.55e10),
        ("h100", 32, (0, 16), (16, 32), 1, 4.55e10),
        ("h100", 32, (4, 8), (8, 12), 1, 4.55e10),
        # On a torus, a link carries the data of all devices along a block's short side.
        ("tpu-v5e", 16, (0, 2), (2, 4), 0, 4.5e10),
        ("tpu-v5e", 16, (0, 4), (4, 8), 0, 4.5e10 / 2),
        ("tpu-v5e", 512, (240, 256), (256, 272), 1, 3.1e9),
    ],
)
def test_a_transfer_takes_the_links_between_two_groups(
    name, chips, first, second, level, rate
):
    link = load_machine(name, chips).levels[level]
    found = seconds(name, chips, first, second)
    assert math.isclose(found, link.start_s + link.latency_s + SIZE / rate)


@pytest.mark.parametrize("name", ["h100", "a100-80g", "v100"])
@pytest.mark.parametrize("stages", [2, 4])
def test_neighbouring_stages_pay_for_a_permutation_along_their_axis(name, stages):
    machine, size = load_machine(name, 32), 32 // stages
    axis = place_mesh(Mesh({"stage": stages, "all": size}), machine).of(("stage",))
    # The slowest pair has the network between it.
    pairs = [
        (range(i, i + size), range(i + size, i + 2 * size))
        for i in range(0, 32 - size, size)
    ]
    found = max(transfer_s(SIZE, *pair, machine) for pair in pairs)
    assert math.isclose(found, permute_s(SIZE, axis))


def test_devices_of_a_node_share_its_network_cards():
    machine = load_machine("v100", 32)
    nvlink, network = machine.levels
    shared = replace(network, group_links=1, link_bytes_per_s=8 * 1.5e9)
    machine = replace(machine, levels=(nvlink, shared))
    machine = replace(machine, grid=make_grid("v100", machine.levels, 32))
    one, all_ = (
        transfer_s(SIZE, range(n), range(8, 8 + n), machine) - shared.latency_s
        for n in (1, 8)
    )
    assert math.isclose(all_, 8 * one)


def test_the_busiest_device_is_a_sender_if_there_are_fewer():
    assert busiest_bytes(SIZE, 2, 8) == 4 * SIZE
    assert busiest_bytes(SIZE, 8, 2) == SIZE
    assert transfer_s(0.0, range(1), range(1, 2), load_machine("h100", 8)) == 0
