"""Training on Ray workers that are killed, and whose number changes on the way."""

import pytest

from benchmarks.cluster.training_kills import Disturbance, at_random, measure
from meshwright.features.train.runners.cluster_runner import ClusterRunner, open_cluster
from meshwright.features.train.train import train
from tests.features.train.recipes import losses, recipe, run

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")
pytest.importorskip("orbax.checkpoint")


def test_processes_are_killed_and_stopped_and_all_losses_are_equal(tmp_path):
    disturbances = [
        Disturbance(5, "controller", 35),  # nobody is silent meanwhile
        Disturbance(12, "worker"),
        Disturbance(20, "client", 35),  # its arrays are freed
        Disturbance(28, "worker", 25),  # it is given up
        Disturbance(34, "client"),
    ]
    found = measure(45, disturbances, seed=3, folder=tmp_path)
    assert [each["victim"] for each in found["disturbances"]] == [
        each.victim for each in disturbances
    ]
    assert found["equal"]
    assert 0 < found["goodput"] < 1
    assert found["longest_without_a_line_s"] < 60


@pytest.mark.slow
def test_thirty_kills_and_ten_pauses_change_no_loss(tmp_path):
    found = measure(300, at_random(30, 10, 300, 0), seed=0, folder=tmp_path)
    assert found["equal"]
    assert found["longest_without_a_line_s"] < 60


class ElasticRunner(ClusterRunner):
    """A runner whose cluster is resized when a step is reached for the first time."""

    def __init__(self, folder, recipe, sizes):
        super().__init__(open_cluster(recipe.cluster), folder, recipe.checkpoint)
        self.sizes = sizes
        self.devices = []

    def agree_to_end(self, number, asked):
        if number in self.sizes:
            self._cluster.resize(self.sizes.pop(number))
        return super().agree_to_end(number, asked)

    def place(self, mesh):
        self.devices.append(mesh.num_devices)
        return super().place(mesh)


def test_a_run_goes_from_eight_devices_to_four_and_back_within_rounding(tmp_path):
    mesh = ("mesh = { data = 4 }", "mesh = { data = -1 }")
    cluster = ("[run]", '[cluster]\naddress = "local:4x2"\n\n[run]')
    made = []

    def make(folder, chosen):
        made.append(ElasticRunner(folder, chosen, {5: 2, 9: 4}))
        return made[0]

    outcome = train(recipe(tmp_path / "elastic", mesh, cluster), make_runner=make)
    assert outcome.is_complete
    assert made[0].devices == [8, 4, 8]
    run(tmp_path / "whole")
    found, wanted = losses(tmp_path / "elastic"), losses(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    for step, loss in wanted.items():
        assert float(found[step]) == pytest.approx(float(loss), rel=1e-5)
