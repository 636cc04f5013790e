"""Gangs that do not start, change their size, or break the engine's promises."""

import asyncio
import re
from dataclasses import replace

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.wire.messages import Call, Put
from meshwright.features.cluster.wire.program_code import ProgramCode
from tests.features.cluster.fake_controller import (
    OPERATOR,
    define,
    devices_of,
    fetch_one,
    run,
    submit,
    until,
    with_slice,
)
from tests.features.cluster.fake_gang import FakeEngine

AT_ONCE = IslandLimits(retry_s=0.0)


def failing(*errors):
    engine = FakeEngine()
    engine.failures = list(errors)
    return engine


@pytest.mark.parametrize("error", [ValueError("num_gpu"), ClusterError("no num_gpu")])
def test_a_client_is_told_why_workers_do_not_start_again_and_again(error):
    async def scenario(controller, engine):
        session = await controller.open("secret")
        with pytest.raises(ClusterError, match=r"do not start.*num_gpu"):
            await controller.slice(session, 4)
        status = await controller.status(session)
        assert "num_gpu" in status.failure
        assert "num_gpu" in str(status)
        engine.failures = []  # whoever runs the machines has mended them
        await until(lambda: engine.gangs)
        await controller.slice(session, 4)
        assert (await controller.status(session)).failure == ""

    run(scenario, engine=failing(*[error] * 10**6), limits=AT_ONCE)


def test_a_gang_that_starts_at_the_second_try_is_waited_for():
    async def scenario(controller, engine):
        await with_slice(controller)
        assert engine.num_starts == 3

    engine = failing(ValueError("once"), OSError("twice"))
    run(scenario, engine=engine, limits=AT_ONCE)


def test_what_waits_for_workers_that_do_not_start_is_told_so():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gate = asyncio.Event()
        engine.gangs[0].dead.add(0)
        await until(lambda: engine.num_starts == 2)
        await submit(controller, session, [define(), Put(1, None, 8)])
        waiting = asyncio.create_task(fetch_one(controller, session, 0, 1))
        engine.failures = [OSError("no machine is left")] * 10**6
        engine.gate.set()
        with pytest.raises(ClusterError, match="no machine is left"):
            await waiting

    run(scenario, limits=AT_ONCE)


def test_a_size_that_is_asked_for_while_a_gang_starts_is_not_forgotten():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gate = asyncio.Event()
        await controller.resize(session, 1)
        await until(lambda: engine.num_starts == 2)
        await controller.resize(session, 4)  # the gang of one worker is on its way
        engine.gate.set()
        await devices_of(controller, session, 8)
        assert [gang.num_workers for gang in engine.gangs] == [2, 1, 4]
        assert [gang.is_stopped for gang in engine.gangs] == [True, True, False]

    run(scenario, OPERATOR)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda gang: setattr(gang, "deaf", True), "TypeError.*cannot be sent"),
        (lambda gang: gang.skipped.add(3), "skipped instruction 3"),
    ],
)
def test_a_gang_that_loses_instructions_is_replaced_and_work_goes_on(fault, reason):
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [define(), Put(1, None, 8)])
        await fetch_one(controller, session, 0, 1)
        fault(engine.gangs[0])
        calls = [Call(0, (1,), (2,)), Call(0, (1,), (3,))]
        await submit(controller, session, calls)
        with pytest.raises(ClusterError, match=reason):
            await fetch_one(controller, session, 0, 3)
        await until(lambda: len(engine.gangs) == 2)
        await submit(controller, session, [Put(4, None, 8), Call(0, (4,), (5,))])
        assert await fetch_one(controller, session, 0, 5)

    run(scenario)


@pytest.mark.parametrize(
    ("fault", "limits", "reason"),
    [
        (lambda gang: gang.dead.add(1), AT_ONCE, "worker 1 is gone"),
        (lambda gang: gang.silent.add(1), AT_ONCE, "worker 1 has not answered"),
        (
            lambda gang: None,
            replace(AT_ONCE, stall_s=0.2),
            r"nothing has completed.*workers \[0, 1\]",
        ),
    ],
)
def test_a_loss_names_the_program_that_the_worker_ran(fault, limits, reason):
    name = "stage 'upper', forward pass (dot_general at model.py:7)"
    code = ProgramCode(b"", (), (), (), name).to_bytes()
    program = replace(define(), code=code)

    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        await submit(controller, session, [program, Put(1, None, 8)])
        await fetch_one(controller, session, 0, 1)
        engine.gangs[0].stuck = True  # in a collective that the others do not reach
        await submit(controller, session, [Call(0, (1,), (2,))])
        await until(lambda: len(engine.gangs[0].received) == 3)
        fault(engine.gangs[0])
        words = f"{reason}.*while it ran {re.escape(name)}"
        with pytest.raises(ClusterError, match=words):
            await fetch_one(controller, session, 0, 2)

    run(scenario, limits=limits)


def test_a_gang_that_cannot_be_ended_does_not_keep_the_next_from_starting():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gangs[0].immortal = True
        engine.gangs[0].dead.add(0)
        await until(lambda: len(engine.gangs) == 2)
        await controller.slice(session, 4)
        text = "\n".join(map(str, await controller.events(session)))
        assert "was not ended: OSError" in text

    run(scenario)


def test_an_array_that_cannot_be_read_is_no_loss_of_the_gang():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        gang = engine.gangs[0]
        gang.unreadable[1] = RuntimeError("Array has been deleted")
        await submit(controller, session, [Put(1, None, 8), Put(2, None, 8)])
        with pytest.raises(ClusterError, match=r"array 1 cannot be read.*deleted"):
            await fetch_one(controller, session, 0, 1)
        assert await fetch_one(controller, session, 0, 2)
        assert not controller.island.is_lost
        gang.unreadable[1] = ConnectionError("gone")
        with pytest.raises(ClusterError, match="workers were lost"):
            await fetch_one(controller, session, 0, 1)
        await until(lambda: len(engine.gangs) == 2)

    run(scenario)


def test_an_error_on_any_worker_is_in_the_log_once_for_each_request():
    async def scenario(controller, engine):
        session, _ = await with_slice(controller)
        engine.gangs[0].errors[1] = "out of memory"  # worker 0 completes without it
        await submit(controller, session, [Put(1, None, 8), Put(2, None, 8)])
        await fetch_one(controller, session, 0, 2)
        found = [e for e in await controller.events(session) if e.kind == "error"]
        assert len(found) == 2
        assert all("worker 1" in e.text and "memory" in e.text for e in found)

    run(scenario)
