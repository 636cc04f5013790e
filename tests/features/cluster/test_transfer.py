"""Deliveries between workers: in any order, before or after they are expected."""

import itertools

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.worker.transfer import Delivery, Mailbox


def numbers(parts):
    return sorted(parts)


def test_parts_that_come_before_and_after_they_are_expected_are_put_together():
    for order in itertools.permutations(["expect", 0, 1]):
        mailbox = Mailbox()
        for each in order:
            if each == "expect":
                future = mailbox.expect((1, 0), 2, numbers)
            else:
                mailbox.deliver(Delivery((1, 0), each, (each,)))
        assert future.result(0) == [0, 1]


def test_transfers_are_kept_apart_and_one_without_senders_ends_at_once():
    mailbox = Mailbox()
    first, second = (mailbox.expect((1, i), 1, numbers) for i in range(2))
    mailbox.deliver(Delivery((1, 1), 0, (5,)))
    assert second.result(0) == [5]
    assert not first.done()
    assert mailbox.expect((2, 0), 0, numbers).result(0) == []


def test_an_array_that_failed_where_it_was_made_fails_where_it_goes():
    for order in itertools.permutations(["expect", "part", "failure"]):
        mailbox = Mailbox()
        for each in order:
            if each == "expect":
                future = mailbox.expect((1, 0), 2, numbers)
            elif each == "part":
                mailbox.deliver(Delivery((1, 0), 0, (0,)))
            else:
                mailbox.deliver(Delivery((1, 0), 1, (), "the program failed"))
        with pytest.raises(ClusterError, match="the program failed"):
            future.result(0)
