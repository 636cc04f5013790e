"""A thousand malformed, unauthenticated and foreign requests, beside honest work."""

import asyncio
import pickle
import random
from pathlib import Path

import pytest

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.ray_connection import ControllerActor
from meshwright.features.cluster.wire.messages import Call, Define, Put
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.features.cluster.worker.worker import Worker
from tests.features.cluster.fake_gang import FakeEngine
from tests.features.cluster.hostile import Attacker

TENANTS = (Tenant("a", "token-a", max_bytes=100), Tenant("b", "token-b"))


def define(number, devices):
    return Define(number, b"", devices, (), (8,), (8,), ())


async def attacked(seed):
    """A thousand hostile calls through the actor's door, and an honest chain of calls."""
    engine, rng = FakeEngine(), random.Random(seed)
    actor = ControllerActor(engine, GangSize(2, 2), TENANTS, IslandLimits(), "key")

    async def ask(method, *arguments):
        return await actor.call(method, arguments)

    honest, hostile = await ask("open", "token-b"), await ask("open", "token-a")
    _, devices, _ = await ask("slice", honest, 2)
    _, own, _ = await ask("slice", hostile, 2)
    await ask("submit", honest, 0, [define(6, devices), Put(5, None, 8)])
    await ask("submit", hostile, 0, [define(0, own), Put(1, None, 8)])
    attacker = Attacker(hostile, own, devices)
    served = []
    for number in range(1000):
        method, arguments = attacker.call(rng)
        try:
            await actor.call(method, arguments)
            served.append((method, arguments))
        except ClusterError:
            pass
        if number % 10 == 0:
            turn = number // 10 + 1
            call = Call(6, (turn + 999 if turn > 1 else 5,), (turn + 1000,))
            await ask("submit", honest, turn, [call])
    (fetched,) = await ask("fetch_all", honest, 101, [1100])
    received = engine.gangs[0].received
    for key in ("", "kee", None, 5):
        with pytest.raises(ClusterError, match="only who has started"):
            await actor.stop(key)
    await actor.stop("key")
    return served, fetched, received, hostile, len(engine.gangs)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_thousand_hostile_calls_none_is_served_and_honest_work_goes_on(seed):
    found = asyncio.run(asyncio.wait_for(attacked(seed), 60))
    served, fetched, received, hostile, num_gangs = found
    assert served == []
    assert {part[0].data for part in fetched} == {1100}
    theirs = [each.request for each in received if each.session == hostile]
    assert [type(each) for each in theirs] == [Define, Put]  # what it may do
    assert len(received) == 4 + 100
    assert num_gangs == 1


class Exploit:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_worker_unpickles_no_code_of_a_tenant(tmp_path):
    path = tmp_path / "ran"
    code = pickle.dumps(Exploit(path))
    pickle.loads(code)
    assert path.exists()  # it would work
    path.unlink()
    worker = Worker(lambda receiver, delivery: None)
    for each in (code, b"", b"\xff" * 100, len(code).to_bytes(8) + code):
        request = Define(0, each, (0,), (), (8,), (8,), ())
        instruction = type("Instruction", (), {"session": "s", "request": request})
        with pytest.raises(ClusterError, match="malformed"):
            worker.define(instruction)
    assert not path.exists()


def test_code_is_the_same_after_it_has_been_sent():
    from meshwright.program.ir import Sharding

    cut, whole = Sharding((("a", "b"), ())), Sharding(())
    code = ProgramCode(b"\x00program", (("a", 2), ("b", 3)), (cut, whole), (cut,))
    assert ProgramCode.from_bytes(code.to_bytes()) == code
