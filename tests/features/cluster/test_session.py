"""A client's session that several threads use."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.life_signs import Notice, close_at_exit
from meshwright.features.cluster.session import ClientSession
from tests.features.cluster.fake_controller import Clock


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


class OpenConnection:
    """Answers everything at once, with what a controller says to a sign of life."""

    def __init__(self, *answers):
        self.asked, self.answers = [], list(answers)

    def call(self, method, *arguments):
        self.asked.append(method)
        answer = Future()
        told = self.answers.pop(0) if method == "beat" and self.answers else ""
        answer.set_result("session" if method == "open" else told)
        return answer


def test_a_session_that_nobody_holds_any_more_is_closed():
    before = set(threading.enumerate())
    session = ClientSession(connection := OpenConnection(), "token")
    (thread,) = set(threading.enumerate()) - before
    del session
    gc.collect()
    thread.join(60)
    assert connection.asked[-1] == "close"


def test_a_session_is_closed_when_the_program_ends():
    session = ClientSession(connection := OpenConnection(), "token")
    close_at_exit(weakref.ref(session))
    close_at_exit(weakref.ref(session))
    assert connection.asked.count("close") == 1


def test_a_client_says_why_nothing_goes_on_and_when_it_does_again():
    clock, lines = Clock(), []
    notice = Notice(lines.append, clock)

    def pass_s(seconds, answers=True, reason=""):
        for _ in range(seconds):
            clock.now_s += 1
            if answers:
                answer = Future()
                answer.set_result(reason)
                notice.hear(answer)
            notice.look()

    pass_s(200)
    pass_s(9, reason="workers are started")
    pass_s(60)
    assert lines == []
    pass_s(100, reason="workers are started")
    assert lines == ["the cluster waits: workers are started"] * 2
    pass_s(1)
    pass_s(100, answers=False)
    pass_s(1)
    assert [line[:40] for line in lines[2:]] == [
        "the cluster goes on, after 101 s",
        "the cluster waits: the controller has no",
        "the cluster waits: the controller has no",
        "the cluster goes on, after 97 s",
    ]
    clock.now_s += 42
    notice.look()
    assert lines[6:] == [lines[-1]]
    assert "this process stood still for 42 s" in lines[-1]


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
