"""`mw.cluster`: start the workers on which steps run, or connect to running ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import ClusterError
from meshwright.features.cluster.client import Cluster
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.limits import IslandLimits
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.local_engine import (
    LocalEngine,
    ThreadConnection,
)
from meshwright.features.cluster.session import Connection
from meshwright.plain import Reader

if TYPE_CHECKING:
    from meshwright.features.cluster.engines.ray_connection import RayConnection

TOKEN = "MESHWRIGHT_TOKEN"
"""The environment variable from which commands read the tenant's (user's) token."""

_ADDRESS = re.compile(r"auto|(ray://)?[\w.\-]+:\d{2,5}")
_LOCAL = re.compile(r"local:(\d+)x(\d+)")
_DEFAULT = "local:4x2"


@dataclass(frozen=True, slots=True)
class Workers:
    """The worker processes that a new cluster starts.

    count: number of worker processes.
    devices: devices per worker; 0 for all devices that a worker finds.
    platform: "cpu", "cuda" or "tpu".
    resources: Ray resources per worker, such as {"num_gpus": 8}.
    """

    count: int = 1
    devices: int = 0
    platform: str = "cpu"
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])


def cluster(
    where: str = "local",
    *,
    token: str = "",
    tenants: tuple[Tenant, ...] = (),
    workers: Workers | None = None,
    limits: IslandLimits | None = None,
    starts: bool = True,
) -> Cluster:
    """A cluster to run steps on. Its workers are started, or found if they run already.

    where: "local:4x2" starts Ray on this machine, with 4 worker processes of 2 CPU devices
        each; "local" means the same. "inline" uses the devices of this process, without
        Ray. "ray://head:10001" or another address names a Ray cluster, on which
        Meshwright's controller is started if none runs there.
    token: the secret of the tenant (user) who connects.
    tenants: who may use a newly started cluster; by default one operator with this `token`.
    workers: the workers to start if a cluster at an address is new.
    starts: whether a cluster may be started if none runs.
    Raises `ClusterError` if this process already has a local cluster of another size.
    """
    if not isinstance(where, str):
        raise ClusterError(f"cluster {where!r}; wanted text, such as 'local:4x2'")
    own = tenants or (Tenant("default", token, is_operator=True),)
    limits = limits or IslandLimits()
    if where == "inline":
        return Cluster(
            ThreadConnection(
                lambda: Controller(LocalEngine(), GangSize(1, 0), own, limits=limits)
            ),
            token,
        )
    connection, size = _connect(where, own, workers, limits, starts)
    found = _opened(connection, token)
    running = found.status().size
    if _local_size(where) and running != size:
        found.close()
        raise ClusterError(
            f"cluster {where!r}: this process has a cluster of {running} already; close "
            f"it first, or join it as 'local:{running.workers}x{running.devices}'"
        )
    return found


def start_cluster(
    where: str, *, token: str, tenants: tuple[Tenant, ...], workers: Workers
) -> Cluster:
    """A newly started cluster, with the arguments of `cluster`.

    Raises `ClusterError` if a controller runs at the address already.
    """
    connection, _ = _connect(where, tenants, workers, IslandLimits(), True)
    if not connection.is_new:
        connection.close()
        raise ClusterError(
            f"a controller runs at {where} already; look at it with meshwright cluster "
            "status, or end it with meshwright cluster stop"
        )
    return _opened(connection, token)


def _opened(connection: Connection, token: str) -> Cluster:
    """A cluster client on an open connection.

    If the token is wrong, close the connection.
    """
    try:
        return Cluster(connection, token)
    except ClusterError:
        connection.close()
        raise


def _local_size(where: str) -> GangSize | None:
    """The number of workers and devices that text such as "local:4x2" asks for.

    `None` if the text is an address.
    """
    found = _LOCAL.fullmatch(_DEFAULT if where == "local" else where)
    return GangSize(int(found[1]), int(found[2])) if found else None


def _connect(
    where: str,
    tenants: tuple[Tenant, ...],
    workers: Workers | None,
    limits: IslandLimits,
    starts: bool,
) -> tuple[RayConnection, GangSize]:
    """A connection through Ray, and the size that a cluster has if it is newly started."""
    from meshwright.features.cluster.engines import ray_connection
    from meshwright.features.cluster.engines.ray_engine import RayEngine

    size, workers = _local_size(where), workers or Workers()
    address = None if size else where
    if size is None and not _ADDRESS.fullmatch(where):
        raise ClusterError(
            f"cluster {where!r}; wanted 'inline', 'local:4x2' for 4 processes of 2 "
            "devices, or an address of Ray: 'auto', 'host:6379' or 'ray://host:10001'"
        )
    if size is not None and not (size.workers and size.devices):
        raise ClusterError(f"cluster {where!r}; wanted 1 or more workers and devices")
    if size:  # "local:4x2" uses CPUs only
        workers = Workers(size.workers, size.devices)
    size = GangSize(workers.count, workers.devices)
    engine = None
    if starts:
        resources = {"num_cpus": 0, **workers.resources}
        engine = RayEngine(workers.platform, resources)
    return ray_connection.connect(address, engine, size, tenants, limits), size


@dataclass(frozen=True, slots=True)
class _Tenants:
    """The file of tenants: tables `[[tenant]]`."""

    tenant: tuple[Tenant, ...] = ()


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """The tenants (users) listed in a TOML file, each as one table `[[tenant]]`.

    Raises `ClusterError` if the file is missing or wrong.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot read tenants from {path}: {error}") from None
    reader = Reader(
        lambda where, fault: ClusterError(f"{path}: {fault}"),
        {Tenant: lambda entry, where: {"token": "", **entry}},
        table="a table",
    )
    found = reader.read(_Tenants, tables).tenant
    names = [each.name for each in found]
    if not found or len(set(names)) < len(names):
        raise ClusterError(
            f"{path}: tenants {names}; wanted one or more, each named once"
        )
    return found
