"""A controller of fake workers, and what a client does with it."""

import asyncio

from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.wire.messages import Define
from tests.features.cluster.fake_gang import FakeEngine

ALL = (0, 1, 2, 3)
ONE = (Tenant("a", "secret"),)
OPERATOR = (Tenant("a", "secret", is_operator=True),)
sent = {}


def define(program=0, devices=ALL, donated=(), inputs=1, outputs=1):
    return Define(program, b"code", devices, donated, (8,) * inputs, (8,) * outputs, ())


class Clock:
    """Seconds that pass only when a test says so."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def run(scenario, tenants=ONE, workers=2, engine=None, **options):
    """Run `scenario(controller, engine)` on a started controller of fake workers."""

    async def main():
        used = engine or FakeEngine()
        size = GangSize(workers, 4 // workers)
        controller = Controller(used, size, tenants, **options)
        await controller.start()
        try:
            return await asyncio.wait_for(scenario(controller, used), 60)
        finally:
            await controller.stop()

    return asyncio.run(main())


async def submit(controller, session, requests):
    """Make the next submission of a session."""
    number = sent.get(session, 0)
    sent[session] = number + 1
    await controller.submit(session, number, requests)


async def fetch_one(controller, session, after, number):
    """The parts of one array."""
    (parts,) = await controller.fetch_all(session, after, [number])
    return parts


async def with_slice(controller, token="secret", count=4):
    session = await controller.open(token)
    _, devices, _ = await controller.slice(session, count)
    return session, devices


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


async def settle():
    """Let everything happen that waits for nothing from outside."""
    for _ in range(200):
        await asyncio.sleep(0)


async def devices_of(controller, session, count):
    """Wait until the cluster has so many devices."""
    while (await controller.status(session)).devices != count:
        await asyncio.sleep(0.005)
