"""The controller: what it refuses, what it counts, and what it does when workers die."""

import asyncio
import dataclasses
import random

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.limits import MOST_SILENT, IslandLimits
from meshwright.features.cluster.controller.running_clock import RunningClock
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.wire.messages import (
    Call,
    Define,
    End,
    Free,
    Put,
    WorkerTask,
)
from tests.features.cluster.fake_controller import (
    ALL,
    Clock,
    define,
    devices_of,
    fetch_one,
    run,
    sent,
    settle,
    submit,
    until,
    with_slice,
)


def test_requests_reach_all_workers_in_order():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        calls = [Call(0, (i,), (i + 1,)) for i in range(1, 50)]
        await submit(controller, session, [define(), Put(1, None, 8), *calls])
        (part,) = {p[0].data for p in await fetch_one(controller, session, 0, 50)}
        assert part == 50
        received = engine.gangs[0].received
        assert [i.request for i in received] == [define(), Put(1, None, 8), *calls]
        assert [i.number for i in received] == list(range(1, 52))

    run(scenario)


def test_a_client_without_the_token_gets_no_session():
    async def scenario(controller, _):
        for token in ("", "secre", "secret ", None, 5):
            with pytest.raises(ClusterError, match="token"):
                await controller.open(token)

    run(scenario)


def test_a_tenant_cannot_name_arrays_programs_or_slices_of_another():
    async def scenario(controller, engine):
        mine, _ = await with_slice(controller)
        await submit(controller, mine, [define(), Put(1, None, 8)])
        other = await controller.open("other")
        for request in (Call(0, (1,), (2,)), define(1)):
            with pytest.raises(ClusterError, match=r"not defined|no slice"):
                await submit(controller, other, [request])
        with pytest.raises(ClusterError, match="not there"):
            await fetch_one(controller, other, 0, 1)
        await submit(controller, other, [Free((1,))])  # names nothing of its own
        assert len(await fetch_one(controller, mine, 0, 1)) == 2  # both workers answer

    run(scenario, [Tenant("a", "secret"), Tenant("b", "other")])


def test_a_task_needs_an_own_slice_own_arrays_and_a_folder_below_the_tenants():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [Put(1, None, 8)])
        fine = WorkerTask("save", "/runs/a/x", "{}", ALL, (1,), (2,), (4,))
        for change, words in [
            ({"folder": "/runs/a/../b"}, "whole paths below /runs/a"),
            ({"folder": "x"}, "whole paths below"),
            ({"folder": "/runs/ab"}, "whole paths below"),
            ({"devices": (0, 1)}, "no slice of this session"),
            ({"inputs": (9,)}, "not there"),
            ({"output_bytes": ()}, "0 results; named are 1"),
            ({"outputs": (1,)}, "there already"),
            ({"argument": {}}, "wanted text"),
        ]:
            with pytest.raises(ClusterError, match=words):
                await submit(controller, session, [dataclasses.replace(fine, **change)])
        await submit(controller, session, [fine])
        await fetch_one(controller, session, 0, 2)
        assert engine.gangs[0].received[-1].request == fine

    run(scenario, [Tenant("a", "secret", folder="/runs/a")])


def hostile(rng):
    """A random request that no well-behaved client sends."""
    junk = [None, -1, 2**70, "x", b"x", [], {}, object(), 1.5, True, (1, "a"), (-1,)]
    pick = lambda: rng.choice(junk)  # noqa: E731
    return rng.choice(
        [
            pick,
            lambda: Call(pick(), pick(), pick()),
            lambda: Call(0, (rng.randrange(100, 200),), (1,)),
            lambda: Put(pick(), pick(), pick()),
            lambda: Define(pick(), pick(), pick(), pick(), pick(), pick(), pick()),
            lambda: Define(1, b"", (rng.randrange(9),), (), (8,), (), ()),
            lambda: Free(pick()) if rng.random() < 0.5 else Free((), pick()),
            lambda: Define(1, b"", ALL, (rng.randrange(1, 9),), (8,), (), ()),
            lambda: WorkerTask(pick(), pick(), pick(), ALL, (1,), (2,), (8,)),
            lambda: WorkerTask("save", "/", "{}", (rng.randrange(3),), (), (), ()),
            lambda: Call(0, (1,) * rng.choice([0, 2, 3]), (2,)),
        ]
    )()


def test_a_thousand_malformed_or_foreign_requests_are_refused_and_nothing_breaks():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [define(), Put(1, None, 8)])
        await fetch_one(controller, session, 0, 1)
        rng, before = random.Random(0), len(engine.gangs[0].received)
        for _ in range(1000):
            name = rng.choice([session, session, session, "no such session", None, 7])
            with pytest.raises(ClusterError):
                await submit(controller, name, rng.choice([[hostile(rng)], None, 3]))
        assert len(engine.gangs[0].received) == before
        await submit(controller, session, [Call(0, (1,), (2,))])
        assert await fetch_one(controller, session, 0, 2)
        assert len(engine.gangs) == 1

    run(scenario)


def test_what_a_refused_call_would_have_made_says_why_it_is_not_there():
    async def scenario(controller, _):
        session, _ = await with_slice(controller)
        with pytest.raises(ClusterError, match=r"array 9 is not there"):
            await submit(controller, session, [define(), Call(0, (9,), (10,))])
        with pytest.raises(ClusterError, match=r"array 10 is not there.*array 9"):
            await fetch_one(controller, session, 0, 10)

    run(scenario)


def test_a_donated_array_is_gone_after_the_call():
    async def scenario(controller, _):
        session, _ = await with_slice(controller)
        requests = [define(donated=(0,)), Put(1, None, 8), Call(0, (1,), (2,))]
        await submit(controller, session, requests)
        with pytest.raises(ClusterError, match="freed or donated"):
            await submit(controller, session, [Call(0, (1,), (3,))])

    run(scenario)


def test_quotas_of_bytes_and_devices_are_kept():
    async def scenario(controller, _):
        session, _ = await with_slice(controller, count=2)
        await submit(controller, session, [Put(1, None, 60)])
        with pytest.raises(ClusterError, match="may hold 100 bytes"):
            await submit(controller, session, [Put(2, None, 60)])
        await submit(controller, session, [Free((1,)), Put(2, None, 60)])
        with pytest.raises(ClusterError, match="may have 3 devices and has 2"):
            await controller.slice(session, 2)

    run(scenario, [Tenant("a", "secret", max_bytes=100, max_devices=3)])


def test_slices_take_the_devices_that_the_fewest_others_have():
    async def scenario(controller, _):
        session = await controller.open("secret")
        found = [(await controller.slice(session, 2))[1] for _ in range(3)]
        assert found == [(0, 1), (2, 3), (0, 1)]

    run(scenario)


def die(gang, clock):
    gang.dead.add(1)


def fall_silent(gang, clock):
    gang.silent.add(0)


def get_stuck(gang, clock):
    gang.stuck = True
    clock.now_s += 601


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (die, "worker 1 is gone"),
        (fall_silent, "worker 0 has not answered"),
        (get_stuck, "nothing has completed for 601 s; waiting.*"),
    ],
)
def test_a_lost_gang_is_ended_and_replaced_and_its_arrays_say_so(fault, reason):
    clock = Clock()

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        gang = engine.gangs[0]
        await submit(controller, session, [define(), Put(1, None, 8)])
        await fetch_one(controller, session, 0, 1)
        gang.stuck = True
        await submit(controller, session, [Call(0, (1,), (2,))])
        await until(lambda: len(gang.received) == 3)
        gang.stuck = False
        fault(gang, clock)
        await until(lambda: len(engine.gangs) == 2)
        assert gang.is_stopped
        for number in (1, 2):
            with pytest.raises(ClusterError, match=f"workers were lost.*({reason})"):
                await fetch_one(controller, session, 0, number)
        # The session goes on, and its programs are there.
        await submit(controller, session, [Put(3, None, 8), Call(0, (3,), (4,))])
        assert await fetch_one(controller, session, 0, 4)
        assert engine.gangs[1].received[0].request == define()
        text = "\n".join(map(str, await controller.events(session)))
        assert "lost" in text
        assert "attempt 2" in text

    run(scenario, clock=clock, silence_s=1e6)


def test_arrays_of_a_client_that_falls_silent_are_freed():
    clock = Clock()

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        other = await controller.open("secret")
        await submit(controller, session, [define(), Put(1, None, 8)])
        clock.now_s += 20
        await controller.beat(other)
        clock.now_s += 20
        await until(
            lambda: any(isinstance(i.request, End) for i in engine.gangs[0].received)
        )
        await controller.beat(other)

    run(scenario, clock=clock)


def test_a_client_that_is_heard_again_goes_on_without_its_arrays():
    clock = Clock()
    tenants = [Tenant("a", "secret", max_devices=4)]

    async def scenario(controller, engine):
        session, devices = await with_slice(controller)
        await submit(controller, session, [define(), Put(1, None, 8)])
        await fetch_one(controller, session, 0, 1)
        clock.now_s += 31
        await until(lambda: session not in controller._sessions.known)
        other, same = await with_slice(controller)  # its devices are free
        assert same == devices
        await controller.close(other)
        with pytest.raises(ClusterError, match=r"silent for 30 s.*put the state again"):
            await fetch_one(controller, session, 0, 1)
        assert (await controller.status(session)).num_losses == 1
        await submit(controller, session, [Put(2, None, 8), Call(0, (2,), (3,))])
        assert await fetch_one(controller, session, 0, 3)
        kinds = [type(i.request) for i in engine.gangs[0].received]
        assert kinds == [Define, Put, End, End, Define, Put, Call]

    run(scenario, tenants, clock=clock)


def test_a_client_that_is_heard_again_is_refused_if_its_devices_are_taken():
    clock = Clock()

    async def scenario(controller, _):
        session, _ = await with_slice(controller)
        clock.now_s += 31
        await until(lambda: session not in controller._sessions.known)
        await with_slice(controller)
        for words in ("after its client was silent.*may have 4 devices", "unknown"):
            with pytest.raises(ClusterError, match=words):
                await controller.beat(session)

    run(scenario, [Tenant("a", "secret", max_devices=4)], clock=clock)


def test_only_few_silent_sessions_are_kept_and_nothing_waits_for_the_others():
    clock = Clock()

    async def scenario(controller, _):
        names = [await controller.open("secret") for _ in range(MOST_SILENT + 1)]
        waits = asyncio.create_task(fetch_one(controller, names[0], 1, 1))
        await settle()
        clock.now_s += 31
        await until(lambda: not controller._sessions.known)
        with pytest.raises(ClusterError, match="submission 0 has not arrived"):
            await waits
        with pytest.raises(ClusterError, match="unknown"):
            await controller.beat(names[0])
        for name in names[1:]:
            await controller.beat(name)

    run(scenario, clock=clock)


def test_a_pause_of_the_controller_is_nobodys_silence():
    passing = Clock()

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [Put(1, None, 8)])
        gang = engine.gangs[0]
        gang.stuck = True
        await submit(controller, session, [Put(2, None, 8)])
        await until(lambda: len(gang.received) == 2)
        passing.now_s += 700  # in one step, as if the process had been stopped
        await asyncio.sleep(1.2)  # all who look have looked
        gang.stuck = False
        await controller.beat(session)
        assert await fetch_one(controller, session, 0, 1)
        assert len(engine.gangs) == 1
        events = "\n".join(map(str, await controller.events(session)))
        assert "stood still for 700 s" in events

    found = []
    clock = RunningClock(lambda seconds: found[0]._log_pause(seconds), passing)

    async def begin(controller, engine):
        found.append(controller)
        await scenario(controller, engine)

    run(begin, clock=clock)


def test_a_sign_of_life_is_answered_with_what_everybody_waits_for():
    clock = Clock()

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        assert await controller.beat(session) == ""
        gang, engine.gate = engine.gangs[0], asyncio.Event()
        gang.stuck = True
        await submit(controller, session, [Put(1, None, 8)])
        await until(lambda: gang.received)
        clock.now_s += 31
        words = "nothing has completed for 31 s; waiting for workers [0, 1]"
        assert await controller.beat(session) == words
        gang.dead = {1}
        await until(lambda: engine.num_starts == 2)
        assert "being started, attempt 2" in await controller.beat(session)
        engine.gate.set()
        await until(lambda: len(engine.gangs) == 2)
        await devices_of(controller, session, 4)
        assert await controller.beat(session) == ""

    run(scenario, clock=clock, silence_s=1e6)


def test_a_full_queue_holds_the_client_back():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gangs[0].stuck = True
        await submit(controller, session, [define(), Put(1, None, 8)])
        calls = [Call(0, (1,), (i,)) for i in range(2, 40)]
        waiting = asyncio.create_task(submit(controller, session, calls))
        await settle()
        assert not waiting.done()
        engine.gangs[0].stuck = False
        await waiting

    limits = IslandLimits(ahead_s=0.0)
    run(scenario, [Tenant("a", "secret", queue=8)], limits=limits)


def test_four_clients_of_two_tenants_all_finish():
    async def scenario(controller, engine):
        sessions = []
        for token in ("secret", "other", "secret", "other"):
            session, devices = await with_slice(controller, token)
            await submit(
                controller, session, [define(devices=devices), Put(1, None, 8)]
            )
            sessions.append(session)

        async def client(session):
            for number in range(2, 502):
                await submit(controller, session, [Call(0, (number - 1,), (number,))])
            return await fetch_one(controller, session, 0, 501)

        assert all(await asyncio.gather(*map(client, sessions)))
        numbers = [i.number for i in engine.gangs[0].received]
        assert numbers == sorted(numbers)

    run(scenario, [Tenant("a", "secret", 2.0), Tenant("b", "other", 1.0)])


def test_a_chain_of_calls_reaches_the_workers_before_any_of_them_has_a_result():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        gang = engine.gangs[0]
        gang.stuck = True  # from here on, nothing completes
        calls = [Call(0, (i,), (i + 1,)) for i in range(1, 129)]
        await submit(controller, session, [define(), Put(1, None, 8)])
        for call in calls:  # each reads what the one before it will make
            await submit(controller, session, [call])
        await until(lambda: len(gang.received) >= 130)
        assert [i.request for i in gang.received[2:]] == calls
        # A second tenant's chain is taken in, and waits for room on the workers.
        other, devices = await with_slice(controller, "other")
        requests = [define(devices=devices), Put(1, None, 8), *calls]
        await submit(controller, other, requests)
        record = controller._sessions.known[other].arrays[129]
        assert not record.made.done()
        gang.stuck = False
        assert await fetch_one(controller, other, 1, 129)

    limits = IslandLimits(ahead_s=1.0, most=130)
    tenants = [Tenant("a", "secret"), Tenant("b", "other")]
    run(scenario, tenants, limits=limits)


def test_the_seconds_on_their_way_bound_how_many_instructions_are():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        gang = engine.gangs[0]
        gang.seconds[session] = 0.05
        await submit(controller, session, [define(), Put(1, None, 8)])
        for number in range(1, 30):  # it learns that a call takes 50 ms
            await submit(controller, session, [Call(0, (number,), (number + 1,))])
            await fetch_one(controller, session, sent[session], number + 1)
        before, gang.stuck = len(gang.received), True
        calls = [Call(0, (i,), (i + 1,)) for i in range(30, 90)]
        await submit(controller, session, calls)
        await settle()
        assert len(gang.received) - before == 8  # not 2 (100 ms of work), nor 60

    run(scenario)


def test_two_busy_tenants_of_weights_two_and_one_get_two_thirds_and_one_third():
    async def scenario(controller, engine):
        await until(lambda: engine.gangs)
        gang, sessions = engine.gangs[0], []
        gang.stuck = True
        for token, seconds in (("secret", 2e-3), ("other", 5e-3)):
            session, devices = await with_slice(controller, token)
            gang.seconds[session] = seconds
            calls = [Call(0, (i,), (i + 1,)) for i in range(1, 801)]
            requests = [define(devices=devices), Put(1, None, 8), *calls]
            await submit(controller, session, requests)
            sessions.append(session)
        gang.stuck = False
        used, calls = dict.fromkeys(sessions, 0.0), dict.fromkeys(sessions, 0)
        await until(lambda: len(gang.received) == 2 * 802)
        for each in gang.received:
            if isinstance(each.request, Call):
                used[each.session] += gang.seconds[each.session]
                calls[each.session] += 1
            if max(calls.values()) == 800:
                break  # from here on only one of them is busy
        share = used[sessions[0]] / sum(used.values())
        assert share == pytest.approx(2 / 3, abs=0.02)

    tenants = [Tenant("a", "secret", 2.0), Tenant("b", "other", 1.0)]
    run(scenario, tenants)
