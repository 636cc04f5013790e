"""Several processes, one search: process 0 searches, the others receive its plan."""

import os
from pathlib import Path

import pytest

from meshwright.app import hosts as app_hosts
from meshwright.app.hosts import Hosts, found_by_one
from meshwright.errors import PlanError
from tests.run.processes import run_workers

WORKER = Path(__file__).with_name("hosts_worker.py")


class Store:
    """A key-value store of one process."""

    def __init__(self):
        self.entries = {}

    def key_value_set_bytes(self, key, value):
        assert len(value) <= 2**20
        assert key not in self.entries
        self.entries[key] = value

    def key_value_dir_get_bytes(self, prefix):
        found = [(k, v) for k, v in self.entries.items() if k.startswith(prefix)]
        return found[::-1]  # in any order


def pair():
    """Process 0 and process 1 of two."""
    store = Store()
    return [Hosts(store, index, 2, 0) for index in range(2)]


def test_a_result_of_many_pieces_arrives_whole():
    first, second = pair()
    found = os.urandom(3 * 2**20)
    first.send(["a step"], found)
    assert second.receive(["a step"], 1.0) == found


def test_an_error_of_the_search_is_raised_in_all_processes():
    first, second = pair()

    def fail():
        raise PlanError("nothing fits")

    for run in (
        lambda: found_by_one(first, ["a step"], fail),
        lambda: second.receive(["a step"], 1.0),
    ):
        with pytest.raises(PlanError, match="nothing fits"):
            run()


def test_an_interrupt_of_process_0_ends_the_others():
    first, second = pair()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found_by_one(first, ["a step"], interrupted)
    with pytest.raises(PlanError, match="process 0 ended with KeyboardInterrupt"):
        second.receive(["a step"], 1.0)


def test_processes_that_ask_for_different_plans_are_told_the_first_difference():
    first, second = pair()
    first.send(["a step", "seed=0", "budget_s=15"], "plan")
    with pytest.raises(PlanError, match="for seed=1 instead of seed=0"):
        second.receive(["a step", "seed=1", "budget_s=5"], 1.0)


def test_a_process_that_waits_in_vain_says_what_to_do(monkeypatch):
    monkeypatch.setattr(app_hosts, "_POLL_S", 0.01)
    _, second = pair()
    with pytest.raises(
        PlanError, match="call autoplan in every process, or plan in one"
    ):
        second.receive(["a step"], 0.02)


def test_two_processes_get_the_plan_of_one_search_and_run_it():
    results = run_workers(WORKER)
    outs = [out for out, _ in results]
    for rank, (out, err) in enumerate(results):
        assert f"process {rank} of 2: equal on 4 devices" in out, err[-3000:]
        assert f"error {rank}: nothing fits" in out
        assert f"process {rank} searched {0 if rank else 3} times" in out
    plans = {line for out in outs for line in out.splitlines() if line[:5] == "plan "}
    assert len(plans) == 1
    assert (
        "error 1: process 1 asked for another plan than process 0, for seed=1"
        in outs[1]
    )
