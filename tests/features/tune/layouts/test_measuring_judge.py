"""Measured costs of layouts, with a compiler whose times are known."""

import pytest

from meshwright.errors import CompilerError
from meshwright.features.tune.layouts.compiler_judge import MeasuringJudge
from meshwright.features.tune.layouts.verdict import Question
from meshwright.features.tune.tune_layouts import tuned_step
from tests.features.tune.layouts.fake_judge import decided

DEFAULT, CHOSEN = Question({}, {}, False), Question({}, {2: (2, 1, 0)}, False)
ANSWER = {
    "hlo": "",
    "bytes_accessed": 0.0,
    "temp_bytes": 0,
    "in_layouts": [],
    "out_layouts": [],
}


class FakeServer:
    """A machine on which each measured program takes as many seconds as it is told."""

    def __init__(self, default_s, chosen_s):
        self.seconds = {"default": default_s, "chosen": chosen_s}
        self.kept = set()
        self.slowdowns = iter(())  # of the chosen program, one for each new process

    def restart(self):
        self.kept.clear()
        self.seconds["chosen"] *= next(self.slowdowns, 1.0)

    def compile(self, key, step, entry):
        self.kept.add(key)
        return ANSWER

    def measure(self, keys, passes, least_s, seed):
        if not self.kept.issuperset(keys):
            raise CompilerError("the process of the compiler ended")
        return [[self.seconds[key]] * passes for key in keys]


def make_judge(server):
    return MeasuringJudge(server, tuned_step(decided()), 0)


def test_the_default_costs_one_and_others_as_many_times_its_time():
    judge = make_judge(FakeServer(0.004, 0.003))
    assert judge.judge(DEFAULT).cost == 1.0
    assert judge.judge(CHOSEN).cost == pytest.approx(0.75)
    assert judge.confirm(CHOSEN).cost == pytest.approx(0.75)


def test_a_cost_does_not_depend_on_the_speed_of_the_machine():
    fast, slow = FakeServer(0.004, 0.005), FakeServer(0.008, 0.010)
    costs = {make_judge(server).judge(CHOSEN).cost for server in (fast, slow)}
    assert costs == {1.25}


def test_the_default_is_compiled_again_after_its_process_ended():
    server = FakeServer(0.004, 0.005)
    judge = make_judge(server)
    assert judge.judge(CHOSEN).cost == 1.25
    server.kept.clear()
    assert judge.judge(CHOSEN).error
    assert judge.judge(CHOSEN).cost == 1.25


def test_a_gain_that_one_process_in_three_does_not_have_is_not_confirmed():
    server = FakeServer(0.004, 0.0038)
    judge = make_judge(server)
    assert judge.judge(CHOSEN).cost == pytest.approx(0.95)
    server.slowdowns = iter((1.0, 1.1, 1 / 1.1))
    assert judge.confirm(CHOSEN).cost == pytest.approx(1.045)
