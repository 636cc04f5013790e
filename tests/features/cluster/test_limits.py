"""Limits of what the controller keeps for clients that do not wait for answers."""

import asyncio

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller import admission, sessions, tenants
from meshwright.features.cluster.controller.events import MOST_EVENTS, EventLog
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.controller.tenants import Session, Tenant
from meshwright.features.cluster.wire.messages import Call, Put
from tests.features.cluster.fake_controller import (
    define,
    fetch_one,
    run,
    settle,
    submit,
    with_slice,
)

TWO = (Tenant("a", "secret", queue=8), Tenant("b", "other"))


def test_a_client_that_waits_for_no_answer_cannot_fill_the_queue():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gangs[0].stuck = True
        first = controller.submit(session, 0, [define(), Put(0, None, 8)])
        await first
        later = [
            asyncio.create_task(
                controller.submit(
                    session, n, [Call(0, (0,), (10 * n + i,)) for i in range(10)]
                )
            )
            for n in range(1, 101)
        ]
        await settle()
        assert controller.island.queue.length("a") <= 8 + 10
        engine.gangs[0].stuck = False
        await asyncio.gather(*later)  # all are taken in the end, in their order
        await fetch_one(controller, session, 101, 1009)
        made = [i.request.outputs[0] for i in engine.gangs[0].received[2:]]
        assert made == list(range(10, 1010))

    run(scenario, TWO, limits=IslandLimits(ahead_s=0.0))


def test_a_submission_that_waits_for_room_does_not_count_as_missing(monkeypatch):
    monkeypatch.setattr(tenants, "_ARRIVAL_S", 0.01)
    monkeypatch.setattr(tenants, "_LOOK_S", 0.01)

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gangs[0].stuck = True
        calls = [Call(0, (0,), (i,)) for i in range(1, 41)]
        begun = [
            asyncio.create_task(controller.submit(session, n, requests))
            for n, requests in enumerate(
                [[define(), Put(0, None, 8)], calls[:30], calls[30:]]
            )
        ]
        fetching = asyncio.create_task(fetch_one(controller, session, 3, 40))
        await asyncio.sleep(0.1)  # ten times as long as a submission may be missing
        assert not fetching.done()
        engine.gangs[0].stuck = False
        await asyncio.gather(*begun)
        assert await fetching
        missing = asyncio.create_task(fetch_one(controller, session, 4, 40))
        await asyncio.sleep(0.1)
        assert not missing.done()  # the client stands still, and cannot send it
        while not missing.done():
            await controller.beat(session)
            await asyncio.sleep(0.005)
        with pytest.raises(ClusterError, match="submission 3 has not arrived"):
            missing.result()

    run(scenario, TWO, limits=IslandLimits(ahead_s=0.0))


def test_calls_of_one_tenant_that_wait_are_counted_and_others_are_served(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_WAITING", 20)

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        other, devices = await with_slice(controller, "other")
        early = [
            asyncio.create_task(controller.submit(session, n, []))
            for n in range(1, 21)  # submission 0 never comes
        ]
        await settle()
        for call in (
            fetch_one(controller, session, 0, 1),
            controller.submit(session, 21, []),
            controller.slice(session, 2),
        ):
            with pytest.raises(ClusterError, match="20 calls of tenant a wait already"):
                await call
        await controller.beat(session)
        await submit(controller, other, [define(devices=devices), Put(1, None, 8)])
        assert await fetch_one(controller, other, 0, 1)
        for each in early:
            each.cancel()
        await asyncio.gather(*early, return_exceptions=True)
        await submit(controller, session, [Put(1, None, 8)])
        assert await fetch_one(controller, session, 0, 1)

    run(scenario, TWO)


def test_several_arrays_are_fetched_by_one_call():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [Put(n, None, 8) for n in range(5)])
        found = await controller.fetch_all(session, 1, [3, 1, 4])
        assert [parts[0][0].data for parts in found] == [3, 1, 4]
        assert await controller.fetch_all(session, 1, []) == []
        for wrong in (None, 5, [9], ["x"], {1: 2}):
            with pytest.raises(ClusterError, match=r"wanted|not there"):
                await controller.fetch_all(session, 1, wrong)

    run(scenario)


def test_programs_requests_sessions_and_arrays_are_bounded(monkeypatch):
    monkeypatch.setattr(admission, "MOST_PROGRAMS", 3)
    monkeypatch.setattr(admission, "MOST_CODE_BYTES", 10)
    monkeypatch.setattr(admission, "MOST_REQUESTS", 5)
    monkeypatch.setattr(admission, "MOST_ARRAYS", 4)
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        with pytest.raises(ClusterError, match="6 requests in one submission"):
            await submit(controller, session, [Put(n, None, 8) for n in range(6)])
        with pytest.raises(ClusterError, match="more than 4 arrays"):
            await submit(controller, session, [Put(n, None, 8) for n in range(5)])
        with pytest.raises(ClusterError, match="8 bytes, and 4 more do not fit in 10"):
            await submit(controller, session, [define(n) for n in range(3)])
        monkeypatch.setattr(admission, "MOST_CODE_BYTES", 100)
        with pytest.raises(ClusterError, match="more than 3 programs"):
            await submit(controller, session, [define(n) for n in range(2, 5)])
        await controller.open("secret")
        with pytest.raises(ClusterError, match="tenant a has 2 sessions"):
            await controller.open("secret")
        await controller.open("other")

    run(scenario, TWO)


def test_the_log_keeps_the_last_events_and_their_numbers():
    log = EventLog()
    for number in range(MOST_EVENTS + 5):
        log.add("open", str(number))
    assert len(log.events) == MOST_EVENTS
    assert [e.number for e in log.after(MOST_EVENTS + 2)] == [
        MOST_EVENTS + 3,
        MOST_EVENTS + 4,
        MOST_EVENTS + 5,
    ]
    assert log.after(0)[0].text == "5"


def test_reasons_of_arrays_that_are_gone_are_kept_for_the_latest(monkeypatch):
    monkeypatch.setattr(tenants, "MOST_REASONS", 10)
    session = Session("s", TWO[0], 0.0)
    for number in range(100):
        session.note_gone([number], "lost")
        assert len(session.gone) <= 10
        assert number in session.gone
