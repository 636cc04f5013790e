"""Slices when the number of devices changes: kept, moved, or without devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.slices import Slices
from meshwright.features.cluster.controller.tenants import Session, Tenant
from meshwright.features.cluster.wire.messages import Call, Free, Put, WorkerTask
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


def test_a_slice_is_moved_where_it_fits_and_back_when_its_devices_are_there():
    async def scenario(controller, engine):
        session, low = await with_slice(controller, count=2)
        _, high, _ = await controller.slice(session, 2)
        assert (low, high) == ((0, 1), (2, 3))
        await submit(controller, session, [define(0, low), define(1, high)])
        await controller.resize(session, 1)
        await devices_of(controller, session, 2)
        gang = engine.gangs[1]
        await until(lambda: len(gang.received) == 2)
        assert {i.request.devices for i in gang.received} == {(0, 1)}
        save = WorkerTask("save", "/x", "{}", high, (), (3,), (4,))
        await submit(controller, session, [Put(1, None, 8), Call(1, (1,), (2,)), save])
        assert len(await fetch_one(controller, session, 0, 2)) == 1
        assert gang.received[-1].request.devices == (0, 1)
        await controller.resize(session, 2)
        await devices_of(controller, session, 4)
        gang = engine.gangs[2]
        await until(lambda: len(gang.received) == 2)
        assert [i.request.devices for i in gang.received] == [(0, 1), (2, 3)]
        await submit(controller, session, [Put(4, None, 8), Call(1, (4,), (5,))])
        await fetch_one(controller, session, 0, 5)
        assert gang.fetched_from == [1]  # the worker of devices 2 and 3

    run(scenario, OPERATOR)


def test_a_slice_that_is_too_large_for_a_while_has_its_programs_when_it_fits_again():
    async def scenario(controller, engine):
        session, devices = await with_slice(controller)
        await submit(controller, session, [define(0, devices)])
        await controller.resize(session, 1)
        await devices_of(controller, session, 2)
        for request in (
            Call(0, (1,), (2,)),
            WorkerTask("save", "/x", "{}", devices, (), (3,), (4,)),
        ):
            with pytest.raises(
                ClusterError, match="4 devices, and there are fewer now"
            ):
                await submit(controller, session, [Put(1, None, 8), request])
            await submit(controller, session, [Free((1,))])
        await controller.resize(session, 2)
        await devices_of(controller, session, 4)
        await submit(controller, session, [Put(1, None, 8), Call(0, (1,), (2,))])
        assert len(await fetch_one(controller, session, 0, 2)) == 2
        assert engine.gangs[2].received[0].request == define(0, devices)

    run(scenario, OPERATOR)


def test_programs_of_a_slice_that_was_given_back_cannot_be_called():
    async def scenario(controller, engine):
        session = await controller.open("secret")
        first, devices, _ = await controller.slice(session, 4)
        second, again, _ = await controller.slice(session, 4)
        assert devices == again
        await submit(controller, session, [define(0, devices), Put(1, None, 8)])
        await controller.release(session, first)
        await submit(controller, session, [Call(0, (1,), (2,))])  # the second's, too
        await controller.release(session, second)
        with pytest.raises(ClusterError, match="program 0 is not defined"):
            await submit(controller, session, [Call(0, (1,), (3,))])
        forgotten = Free((), (0,))
        await until(lambda: forgotten in [i.request for i in engine.gangs[0].received])

    run(scenario)


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    totals=st.lists(st.integers(1, 8), max_size=4),
)
def test_a_slice_has_devices_exactly_if_there_are_enough(sizes, totals):
    session = Session("s", Tenant("a", "t"), 0.0)
    slices = Slices({"s": session})
    homes = [slices.add(session, size, 8)[1] for size in sizes]
    for total in [*totals, 8]:
        slices.fit(total)
        for home in homes:
            found = session.present(home)
            assert (found is None) == (len(home) > total)
            if found is not None:
                assert len(found) == len(home)
                assert set(found) <= set(range(total))
            if max(home) < total:
                assert found == home
