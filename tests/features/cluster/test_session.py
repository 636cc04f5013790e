"""A client's session that several threads use."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.session import ClientSession


class LeftConnection:
    """A connection that has ended after the session was opened."""

    def __init__(self):
        self.asked = []

    def call(self, method, *arguments):
        self.asked.append(method)
        if method != "open":
            raise ClusterError("this process has left Ray")
        answer = Future()
        answer.set_result("session")
        return answer


def test_a_session_whose_connection_has_ended_gives_no_more_signs_of_life():
    before = set(threading.enumerate())
    session = ClientSession(connection := LeftConnection(), "token")
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert connection.asked == ["open", "beat"]
    with pytest.raises(ClusterError, match="has left Ray"):
        session.beat()


class MeetingConnection:
    """Answers at once; who asks whether an answer is there waits for another to ask."""

    def __init__(self):
        self.meeting = threading.Barrier(2)

    def call(self, method, *arguments):
        answer = Answer()
        answer.meeting = self.meeting
        answer.set_result("session" if method == "open" else None)
        return answer


class Answer(Future):
    def done(self):
        # nobody else asks if the session lets one thread in at a time
        with suppress(threading.BrokenBarrierError):
            self.meeting.wait(timeout=0.2)
        return True

    def result(self, timeout=None):
        time.sleep(0.2)  # whoever met this thread goes on meanwhile
        return super().result(timeout)


def test_two_threads_settle_one_answer_once():
    session = ClientSession(MeetingConnection(), "token")
    session.submit()
    with ThreadPoolExecutor(2) as threads:
        for submitted in [threads.submit(session.submit) for _ in range(2)]:
            submitted.result()
    session.close()
