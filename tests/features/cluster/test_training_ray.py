"""Training on Ray workers that are killed, and whose number changes on the way."""

import pytest

from benchmarks.cluster.training_kills import measure
from meshwright.features.train.runners.cluster_runner import ClusterRunner, open_cluster
from meshwright.features.train.train import train
from tests.features.train.recipes import losses, recipe, run

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")
pytest.importorskip("orbax.checkpoint")


def test_a_worker_and_then_the_client_are_killed_and_all_losses_are_equal(tmp_path):
    victims = ["worker", "client"]
    found = measure(steps=40, victims=victims, seed=3, folder=tmp_path)
    assert [kill["killed"] for kill in found["kills"]] == victims
    assert found["equal"]
    assert 0 < found["goodput"] < 1


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
