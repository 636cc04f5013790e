"""Meters: work counts alike on every machine; real time only ends what takes too long."""

import pytest

from meshwright.search.work import Work, WorkMeter

STEP = Work("step", 0.5)


class Clock:
    """Real time that moves when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_work_moves_the_meter_and_real_time_does_not():
    clock = Clock()
    meter = WorkMeter.for_budget(10.0, clock)
    meter.count(STEP, 3)
    clock.now += 60.0
    assert meter.read() == 1.5
    assert not meter.is_cut
    assert meter.real_s == 60.0


@pytest.mark.parametrize(("budget_s", "net_s"), [(1.0, 120.0), (100.0, 800.0)])
def test_after_the_safety_net_the_meter_stands_at_its_end(budget_s, net_s):
    clock = Clock()
    meter = WorkMeter.for_budget(budget_s, clock)
    clock.now += net_s - 1
    meter.count(STEP)
    assert (meter.read(), meter.is_cut) == (0.5, False)
    clock.now += 1
    assert (meter.read(), meter.is_cut) == (budget_s, True)
    meter.count(STEP)
    assert meter.read() == budget_s + 0.5


def test_waiting_for_another_process_moves_the_meter_forwards_only():
    meter = WorkMeter()
    meter.count(STEP, 4)
    meter.advance(1.0)
    assert meter.read() == 2.0
    meter.advance(3.0)
    assert meter.read() == 3.0
