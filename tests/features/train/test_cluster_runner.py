"""Training on a cluster: equal losses, and a run that goes on when its workers are lost."""

import time
import warnings

import pytest

from meshwright.errors import CheckpointError, ClusterError
from meshwright.features.checkpoint import Checkpoints
from meshwright.features.cluster.client import Cluster
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.local_engine import LocalGang, ThreadConnection
from meshwright.features.train.recovery import Recovery
from meshwright.features.train.runners.cluster_runner import ClusterRunner, open_cluster
from meshwright.features.train.train import train
from tests.features.train.recipes import losses, recipe, run

INLINE = ("[run]", '[cluster]\naddress = "inline"\nretries = 2\n\n[run]')


class LosingRunner(ClusterRunner):
    """A runner whose workers are lost after some calls, counted over the whole run."""

    def __init__(self, folder, recipe, lost_at):
        super().__init__(open_cluster(recipe.cluster), folder, recipe.checkpoint)
        self.lost_at, self.calls = lost_at, 0

    def agree_to_end(self, number, asked):
        self.calls += 1
        if self.calls in self.lost_at:
            self._cluster.resize(1)
        return super().agree_to_end(number, asked)


def train_with_losses(folder, lost_at):
    def make(checkpoints, recipe):
        return LosingRunner(checkpoints, recipe, lost_at)

    return train(recipe(folder, INLINE), make_runner=make)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run on the devices of this process."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def test_a_run_on_a_cluster_has_the_losses_of_one_on_local_devices(whole, tmp_path):
    outcome = run(tmp_path, INLINE)
    assert outcome.is_complete
    assert losses(tmp_path) == losses(whole)
    assert "ready" in (tmp_path / "cluster.log").read_text()


def test_a_run_whose_workers_are_lost_goes_on_with_equal_losses(whole, tmp_path):
    outcome = train_with_losses(tmp_path, lost_at={3, 11})
    assert losses(tmp_path) == losses(whole)
    first, second = outcome.recovery.losses
    assert first.saved == 0  # nothing was saved before step 4
    assert second.saved == 4  # its workers ran until the evaluation of step 6
    assert 0 < outcome.recovery.goodput < 1
    assert "goodput" in str(outcome)
    assert (tmp_path / "cluster.log").read_text().count("lost") == 2


class ElasticGang(LocalGang):
    """A worker that shows only some of its devices."""

    def __init__(self, attempt, count):
        super().__init__(attempt)
        self.processes = (0,) * count


class ElasticEngine:
    async def start(self, size, attempt):
        return ElasticGang(attempt, size.devices)

    def require_possible(self, size):
        assert size.workers == 1


class BlinkingRunner(ClusterRunner):
    """A runner on eight devices, which are four for a while that it does not see."""

    def __init__(self, folder, recipe):
        tenants = (Tenant("default", "", is_operator=True),)
        eight = GangSize(1, 8)
        self.connection = ThreadConnection(
            lambda: Controller(ElasticEngine(), eight, tenants)
        )
        super().__init__(Cluster(self.connection), folder, recipe.checkpoint)
        self.num_partitions = 0

    def agree_to_end(self, number, asked):
        island = self.connection._controller.island
        if number == 5 and island.attempt == 1:
            for attempt, count in [(2, 4), (3, 8)]:
                size = GangSize(1, count)
                self.connection._loop.call_soon_threadsafe(island.resize, size)
                while (now := self._cluster.status()).attempt != attempt or (
                    now.devices != count
                ):
                    time.sleep(0.01)
        return super().agree_to_end(number, asked)

    def place(self, mesh):
        self.num_partitions += 1
        return super().place(mesh)


def test_a_run_goes_on_when_devices_are_gone_and_back_before_it_looks(whole, tmp_path):
    made = []

    def make(folder, chosen):
        made.append(BlinkingRunner(folder, chosen))
        return made[0]

    mesh = ("mesh = { data = 4 }", "mesh = { data = -1 }")
    outcome = train(recipe(tmp_path, mesh), make_runner=make)
    assert outcome.is_complete
    assert len(outcome.recovery.losses) == 1
    assert made[0].num_partitions == 1
    found, wanted = losses(tmp_path), losses(whole)
    assert found.keys() == wanted.keys()
    for step, loss in wanted.items():
        assert float(found[step]) == pytest.approx(float(loss), rel=1e-5)


def test_a_run_gives_up_when_its_workers_are_lost_again_and_again(tmp_path):
    with pytest.raises(ClusterError, match="lost 3 times since step 0 was saved"):
        train_with_losses(tmp_path, lost_at=set(range(1, 100)))


def test_a_run_begun_on_local_devices_goes_on_on_a_cluster_and_back(whole, tmp_path):
    steps = "steps = 12"
    run(tmp_path, (steps, "steps = 4"))
    run(tmp_path, INLINE, (steps, "steps = 8"), resume=True)
    run(tmp_path, resume=True)
    assert losses(tmp_path) == losses(whole)


def test_a_damaged_checkpoint_is_skipped_by_workers(whole, tmp_path):
    run(tmp_path, INLINE, ("steps = 12", "steps = 8"))
    for path in (tmp_path / "checkpoints" / "8" / "state").rglob("d/*"):
        path.write_bytes(path.read_bytes()[:-8])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(tmp_path, INLINE, resume=True)
    assert any("step 8 is damaged" in str(each.message) for each in caught)
    assert losses(tmp_path) == losses(whole)


def test_the_directory_of_another_writer_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "meshwright.features.train.runners.cluster_runner._WRITER_S", 0.0
    )
    with (
        Checkpoints(tmp_path / "checkpoints"),
        pytest.raises(ClusterError, match="another writer"),
    ):
        run(tmp_path, INLINE)


def test_an_error_of_the_program_is_not_taken_for_a_loss(tmp_path):
    with pytest.raises(ClusterError, match="a slice of 16 devices"):
        run(tmp_path, INLINE, ("data = 4", "data = 16"))


def test_goodput_counts_overlapping_losses_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        "meshwright.features.train.recovery.time.monotonic", lambda: now[0]
    )
    recovery = Recovery(3, _started_s=0.0)
    lost = ClusterError("gone")
    for at_s, event in [(10, "reach"), (20, "lose"), (30, "lose"), (50, "reach")]:
        now[0] = float(at_s)
        if event == "lose":
            recovery.lose(lost, now[0])
            recovery.resume(0)
        else:
            recovery.reach(7)
    now[0] = 100.0
    assert [loss.seconds for loss in recovery.losses] == [30.0, 20.0]
    assert recovery.goodput == pytest.approx(0.7)


def test_states_without_a_shared_directory_are_an_error(tmp_path, monkeypatch):
    run(tmp_path, INLINE, ("steps = 12", "steps = 4"))

    def unseen(self, step):
        raise CheckpointError(f"{self.directory} has no step {step}")

    monkeypatch.setattr(Checkpoints, "saved", unseen)
    with pytest.raises(ClusterError, match="wanted one file system"):
        run(tmp_path, INLINE, resume=True)


@pytest.mark.slow
def test_a_search_finds_the_plan_for_the_devices_of_a_cluster(tmp_path):
    plans = []
    run(
        tmp_path,
        INLINE,
        ('"cut"', '"auto"\nbudget = 2'),
        ("steps = 12", "steps = 2"),
        ("evaluate_every = 6", ""),
        tell_plan=plans.append,
    )
    assert plans[0].mesh.num_devices == 8
    assert list(losses(tmp_path)) == [1, 2]
