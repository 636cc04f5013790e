"""The controller as an actor of Ray, and the connection of a client to it."""

import contextlib
import inspect
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from meshwright.errors import ClusterError
from meshwright.run.cluster.controller import Controller
from meshwright.run.cluster.gang import GangSize
from meshwright.run.cluster.island import IslandLimits
from meshwright.run.cluster.ray_engine import RayEngine, require_ray
from meshwright.run.cluster.tenants import Tenant
from meshwright.run.cluster.wire.messages import HostArray

NAMESPACE = "meshwright"
CONTROLLER = "controller"


class ControllerActor:
    """The controller, as an actor of Ray."""

    def __init__(
        self,
        engine: RayEngine,
        size: GangSize,
        tenants: Sequence[Tenant],
        limits: IslandLimits,
    ) -> None:
        self._controller = Controller(engine, size, tenants, limits=limits)
        self._is_started = False

    async def call(self, method: str, arguments: Sequence[Any]) -> Any:
        """The answer of one of the controller's public methods."""
        if not self._is_started:
            self._is_started = True
            await self._controller.start()
        if type(method) is not str or method not in _PUBLIC:
            raise ClusterError(f"{method!r:.60} is nothing that a controller does")
        asked = getattr(self._controller, method)
        try:
            inspect.signature(asked).bind(*arguments)
        except TypeError as error:
            raise ClusterError(f"{method}: {error}") from None
        return await asked(*arguments)

    async def stop(self) -> None:
        """End the workers."""
        await self._controller.stop()


_PUBLIC = frozenset(
    {
        "beat", "close", "events", "fetch", "open", "release", "resize", "shutdown",
        "slice", "status", "submit",
    }
)  # fmt: skip
"""Methods of a controller that clients call."""


class RayConnection:
    """A connection to a controller that is an actor.

    owned: whether the controller ends with this connection.
    address: where other clients find Ray.
    """

    def __init__(self, actor: Any, owned: bool, started_ray: bool) -> None:
        self._ray = require_ray()
        self._actor = actor
        self.owned = owned
        self._started_ray = started_ray
        self.address: str = self._ray.get_runtime_context().gcs_address

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """See `Connection`."""
        return _unwrapped(self._actor.call.remote(method, arguments).future())

    def store(self, value: HostArray) -> Any:
        """See `Connection`."""
        return self._ray.put(value)

    def load(self, value: Any) -> Any:
        """See `Connection`."""
        return self._ray.get(value[0])

    def close(self) -> None:
        """See `Connection`."""
        if self.owned:
            with contextlib.suppress(
                self._ray.exceptions.RayActorError
            ):  # gone already
                self._ray.get(self._actor.stop.remote())
            self._ray.kill(self._actor)
        if self._started_ray:
            self._ray.shutdown()


def _unwrapped(future: Future[Any]) -> Future[Any]:
    """A future that raises the controller's error instead of Ray's around it."""
    found: Future[Any] = Future()

    def settle(done: Future[Any]) -> None:
        error = done.exception()
        cause = getattr(error, "cause", None)
        if error is None:
            found.set_result(done.result())
        elif isinstance(cause, ClusterError):
            found.set_exception(ClusterError(str(cause)))
        elif "Actor" in type(error).__name__:
            found.set_exception(ClusterError(f"the controller is gone: {error}"))
        else:
            found.set_exception(error)

    future.add_done_callback(settle)
    return found


def connect(
    address: str | None,
    engine: RayEngine | None,
    size: GangSize,
    tenants: Sequence[Tenant],
    limits: IslandLimits,
) -> RayConnection:
    """A connection to the controller of a Ray cluster, which is started if there is none.

    address: of a Ray cluster, such as "ray://head:10001" or "auto"; `None` starts Ray on
        this machine, and ends it with the connection.
    engine: of a controller that is started; `None` starts none.
    Raises `ClusterError` if there is no Ray at the address, or no controller and no engine.
    """
    ray = require_ray()
    started = not ray.is_initialized()
    if started:
        _join_ray(ray, address)
    with contextlib.suppress(ValueError):
        known = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
        return RayConnection(known, owned=False, started_ray=started)
    if engine is None:
        if started:
            ray.shutdown()
        raise ClusterError(
            f"Ray at {address} has no controller; start one with meshwright cluster start"
        )
    actor = ray.remote(max_concurrency=1000, num_cpus=0)(ControllerActor).options(
        name=CONTROLLER,
        namespace=NAMESPACE,
        lifetime="detached" if address else None,
    )
    controller = actor.remote(engine, size, tenants, limits)
    return RayConnection(controller, owned=address is None, started_ray=started)


def _join_ray(ray: Any, address: str | None) -> None:
    """Join the Ray at an address, or start one for this machine alone.

    JAX warns of every fork. Ray forks to start its processes, which run other programs
    at once and never enter JAX.
    """
    own = {} if address else {"_node_ip_address": "127.0.0.1"}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", r"os\.fork\(\) was called", RuntimeWarning
            )
            ray.init(
                address,
                **own,
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
            )
    except (ConnectionError, ray.exceptions.RaySystemError) as error:
        raise ClusterError(
            f"there is no Ray at {address!r}, or it wants its token ({error}); start "
            "workers with meshwright cluster start, or set RAY_AUTH_MODE=token"
        ) from error
