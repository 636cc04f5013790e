"""`meshwright cluster`: what it refuses before any worker is started."""

from unittest.mock import Mock

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines import ray_connection
from meshwright.features.cluster.start import read_tenants


def test_workers_on_cpus_need_a_number_of_devices(run):
    done = run("cluster", "start", "--workers", "2")
    assert done.status == 2
    assert "give --devices" in done.err


def test_a_cluster_without_an_operator_is_not_started(run, tmp_path):
    path = tmp_path / "tenants.toml"
    path.write_text('[[tenant]]\nname = "a"\n')
    done = run("cluster", "start", "--devices", "2", "--tenants", path)
    assert done.status == 2
    assert "add is_operator = true" in done.err


def test_workers_are_not_started_where_a_controller_runs(run, monkeypatch):
    known = Mock(is_new=False)
    monkeypatch.setattr(ray_connection, "connect", lambda *arguments: known)
    done = run("cluster", "start", "--devices", "2", "--address", "host:6379")
    assert done.status == 2
    assert "a controller runs at host:6379 already" in done.err
    known.close.assert_called_once_with()


def test_tenants_are_read_from_a_file(tmp_path):
    path = tmp_path / "tenants.toml"
    path.write_text(
        '[[tenant]]\nname = "a"\nweight = 2\nis_operator = true\n'
        '[[tenant]]\nname = "b"\ntoken = "t"\nfolder = "/runs/b"\n'
    )
    first, second = read_tenants(path)
    assert first == Tenant("a", "", 2, is_operator=True)
    assert second == Tenant("b", "t", folder="/runs/b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tenant = [", "cannot read tenants"),
        ("", "wanted one or more"),
        ('[[tenant]]\nname = "a"\nwieght = 2\n', "did you mean 'weight'"),
        ("[[tenant]]\nname = 3\n", r"tenant\[0\].name is 3; wanted a text"),
        ('[[tenant]]\nname = "a"\n[[tenant]]\nname = "a"\n', "each named once"),
        ("[[tenant]]\nweight = 1.0\n", r"\[tenant\[0\]\] lacks name"),
    ],
)
def test_a_file_of_tenants_that_is_wrong_is_refused(tmp_path, text, words):
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    with pytest.raises(ClusterError, match=words):
        read_tenants(path)
