"""The controller as a Ray actor, and a client's connection to it."""

import contextlib
import hmac
import inspect
import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.limits import MOST_WAITING, IslandLimits
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.ray_address import NAMESPACE, join_ray
from meshwright.features.cluster.engines.ray_engine import RayEngine, require_ray
from meshwright.features.cluster.wire.messages import HostArray

_BEATS = 100
"""Number of signs of life of clients that the controller processes at once."""

_UNCOUNTED = 100
"""Number of calls at once in addition to the `MOST_WAITING` of each tenant.

They are for calls that are answered without waiting.
"""

CONTROLLER = "controller"

_CONTROLLER_GONE = (
    "the controller is gone, and all arrays and workers with it: its process was ended, "
    "or its machine; start a new cluster, and go on from the last checkpoint (meshwright "
    "train --resume)"
)


class ControllerActor:
    """The controller of a cluster, as an actor of Ray."""

    def __init__(
        self,
        engine: RayEngine,
        size: GangSize,
        tenants: Sequence[Tenant],
        limits: IslandLimits,
        key: str = "",
    ) -> None:
        """Create the controller without any worker; the holder of `key` may stop it."""
        self._controller = Controller(engine, size, tenants, limits=limits)
        self._key = key
        self._is_started = False

    async def call(self, method: str, arguments: Sequence[Any]) -> Any:
        """Call one of the controller's public methods, and return its answer."""
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

    async def stop(self, key: str) -> None:
        """End the workers; raises `ClusterError` for a key that is not the creator's."""
        is_creator = type(key) is str and hmac.compare_digest(key, self._key)
        if not (self._key and is_creator):
            raise ClusterError("only who has started the controller may stop it so")
        await self._controller.stop()


_PUBLIC = frozenset(
    {
        "beat", "close", "events", "fetch_all", "open", "release", "resize", "shutdown",
        "slice", "status", "submit", "wait",
    }
)  # fmt: skip
"""Methods of a controller that clients call."""


class RayConnection:
    """A connection to a controller that is a Ray actor.

    owned: whether the controller ends with this connection.
    key: secret that the controller requires before it stops; "" if another process
        started it.
    address: address at which other clients find Ray.
    """

    shares_memory = False  # Ray's object store has copies

    def __init__(self, actor: Any, owned: bool, started_ray: bool, key: str) -> None:
        self._ray = require_ray()
        self._actor = actor
        self.owned = owned
        self._key = key
        self._started_ray = started_ray
        self.address: str = self._ray.get_runtime_context().gcs_address

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the controller; returns a future of its answer.

        Raises `ClusterError` after this process has left Ray.
        """
        self._require_ray_runs()
        call = self._actor.call
        if method == "beat":
            call = call.options(concurrency_group="beats")
        return self._unwrapped(call.remote(method, arguments).future())

    @property
    def is_new(self) -> bool:
        """Whether this connection has started the controller."""
        return bool(self._key)

    def store(self, value: HostArray) -> Any:
        """Put an array into Ray's object store; returns a reference to it.

        Raises `ClusterError` after this process has left Ray.
        """
        self._require_ray_runs()
        return self._ray.put(value)

    def load(self, value: Any) -> Any:
        """The array behind a reference in the controller's answer.

        Raises `ClusterError` after this process has left Ray.
        """
        self._require_ray_runs()
        return self._ray.get(value[0])

    def close(self) -> None:
        """End the connection, with the controller and Ray if it started them."""
        if not self._ray.is_initialized():  # closed before
            return
        if self.owned:
            gone = self._ray.exceptions.RayActorError
            with contextlib.suppress(gone):
                if self._key:
                    self._ray.get(self._actor.stop.remote(self._key))
            self._ray.kill(self._actor)
        if self._started_ray:
            self._ray.shutdown()

    def _require_ray_runs(self) -> None:
        """Raise `ClusterError` if it does not: Ray would start another cluster."""
        if not self._ray.is_initialized():
            raise ClusterError(
                "this process has left Ray: the cluster was closed, or the program ends; "
                "connect again"
            )

    def _unwrapped(self, future: Future[Any]) -> Future[Any]:
        """A future that raises the controller's own error, not Ray's error around it."""
        found: Future[Any] = Future()
        kinds = self._ray.exceptions

        def settle(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                found.set_result(done.result())
                return
            is_remote = isinstance(error, kinds.RayTaskError)
            cause: Any = getattr(error, "cause", error) if is_remote else error
            if isinstance(cause, ClusterError):
                found.set_exception(ClusterError(str(cause)))
            elif isinstance(error, kinds.RayActorError):
                gone = ClusterError(_CONTROLLER_GONE)
                gone.__cause__ = error  # Ray's own report, of many lines
                found.set_exception(gone)
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
    """Connect to the controller of a Ray cluster, which is started if there is none.

    address: address of a Ray cluster, such as "ray://head:10001" or "auto". `None`
        starts Ray on this machine, and ends it with the connection.
    engine: engine that starts workers for a new controller; `None` to start no
        controller.
    Raises `ClusterError` if there is no Ray at the address, or if it has no controller
    and `engine` is `None`.
    """
    ray = require_ray()
    started = not ray.is_initialized()
    if started:
        join_ray(ray, address)
    with contextlib.suppress(ValueError):
        known = ray.get_actor(CONTROLLER, namespace=NAMESPACE)
        return RayConnection(known, owned=False, started_ray=started, key="")
    if engine is None:
        if started:
            ray.shutdown()
        raise ClusterError(
            f"Ray at {address} has no controller; start one with meshwright cluster start"
        )
    key = secrets.token_hex(16)
    controller = _controller_actor(ray, len(tenants), address is not None).remote(
        engine, size, tenants, limits, key
    )
    owned = address is None
    return RayConnection(controller, owned=owned, started_ray=started, key=key)


def _controller_actor(ray: Any, num_tenants: int, stays: bool) -> Any:
    """The controller's actor class, with enough threads for all calls that may wait.

    Signs of life have a group of threads of their own, so that one tenant's waiting
    calls do not delay those of another.
    """
    return ray.remote(
        max_concurrency=MOST_WAITING * num_tenants + _UNCOUNTED,
        concurrency_groups={"beats": _BEATS},
        num_cpus=0,
    )(ControllerActor).options(
        name=CONTROLLER,
        namespace=NAMESPACE,
        lifetime="detached" if stays else None,
    )
