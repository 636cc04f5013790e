"""A worker whose instructions fail: it completes them all, and keeps nothing of them."""

import time
from concurrent.futures import Future
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.wire.messages import (
    ArrayKey,
    Call,
    Define,
    HostArray,
    Put,
    Transfer,
    WorkerInstruction,
)
from meshwright.features.cluster.worker import progress as progress_module
from meshwright.features.cluster.worker.progress import WorkerProgress
from meshwright.features.cluster.worker.worker import Worker

KEY = ArrayKey("s", 1)


@pytest.fixture
def worker():
    found = Worker(lambda receiver, delivery: None)
    yield found
    found.close()


def errors(worker, *requests):
    """The errors of the completions of requests, which are all that a worker gets."""
    numbered = enumerate(requests, start=1)
    worker.execute([WorkerInstruction(n, "s", request) for n, request in numbered])
    found, end = {}, time.monotonic() + 60
    while len(found) < len(requests) and time.monotonic() < end:
        found |= {each.number: each.error for each in worker.completions(len(found))}
    return [found[n] for n in range(1, len(requests) + 1)]


def put(number, value):
    return Put(number, value, 8)


def test_an_array_that_is_lost_with_its_client_fails_alone():
    def load(value):
        if value == "a reference":
            raise ConnectionError("its owner has died")
        return value

    worker = Worker(lambda receiver, delivery: None, load)
    fine = HostArray(np.ones(1))
    found = errors(worker, put(1, "a reference"), put(2, fine), put(3, fine))
    assert found == ["ConnectionError: its owner has died", "", ""]
    with pytest.raises(ClusterError, match="its owner has died"):
        worker.fetch(KEY)
    assert worker.fetch(ArrayKey("s", 3))[0].data == 1
    worker.close()


def test_completions_go_on_after_results_that_end_with_any_error():
    progress, lost = WorkerProgress(), Future()
    lost.set_exception(MemoryError("out of memory"))
    for number, results in [(1, [lost]), (2, [jnp.ones(2)]), (3, None)]:
        progress.await_results(number, progress.begin(), results)
    found, end = [], time.monotonic() + 60
    while len(found) < 3 and time.monotonic() < end:
        found += progress.completions(len(found))
    assert [each.error for each in found] == ["MemoryError: out of memory", "", ""]
    progress.close()
    assert not progress._watcher.is_alive()


class InDonation:
    """An array that a later call takes over at this moment."""

    def block_until_ready(self):
        raise RuntimeError("called on deleted or donated buffer")

    def is_deleted(self):
        return False


def test_a_result_in_donation_is_no_error_if_another_is_ready(monkeypatch):
    kinds = SimpleNamespace(Array=(jax.Array, InDonation))
    monkeypatch.setattr(progress_module, "jax", kinds)
    progress = WorkerProgress()
    for number, results in [(1, [InDonation(), jnp.ones(2)]), (2, [InDonation()])]:
        progress.await_results(number, progress.begin(), results)
    found, end = [], time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < end:
        found += progress.completions(len(found))
    assert found[0].error == ""
    assert "donated buffer" in found[1].error
    progress.close()


def test_an_array_that_a_call_has_taken_over_is_refused_with_words(worker):
    taken = jnp.ones(8)
    taken.delete()
    worker._arrays[KEY] = taken
    with pytest.raises(ClusterError, match="array 1 was donated to a call"):
        worker.fetch(KEY)


def test_an_array_that_cannot_be_assembled_is_refused_with_the_reason(worker):
    worker._arrays[KEY] = Future()
    worker._arrays[KEY].set_exception(RuntimeError("out of memory"))
    with pytest.raises(ClusterError, match=r"array 1 .* out of memory"):
        worker.fetch(KEY)


def test_donated_arrays_of_a_call_that_fails_are_freed(worker):
    program = Define(0, b"no code", (0,), (0,), (8, 8), (8,), ())
    fine = HostArray(np.ones(1))
    found = errors(
        worker, program, put(1, fine), put(2, fine), Call(0, (1, 2), (3,)),
        Transfer(0, (0,), (2,), (4,)),
    )  # fmt: skip
    assert [bool(error) for error in found] == [True, False, False, True, True]
    assert "malformed" in found[3]
    assert set(worker._arrays) == {ArrayKey("s", n) for n in (2, 3, 4)}


def test_a_request_of_an_unknown_kind_is_completed_with_an_error(worker):
    assert "KeyError" in errors(worker, object())[0]


def test_a_worker_that_is_closed_keeps_no_array_and_no_thread(worker):
    errors(worker, put(1, HostArray(np.ones(1))))
    worker.close()
    assert not worker._arrays
    assert not worker._progress._watcher.is_alive()
