"""A client's session that several threads use."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from meshwright.run.cluster.session import ClientSession


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
