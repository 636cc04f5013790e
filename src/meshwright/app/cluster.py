"""`mw.cluster`: workers to run steps on, started here or found."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from meshwright.errors import ClusterError, did_you_mean
from meshwright.run.cluster.client import Cluster
from meshwright.run.cluster.controller import Controller
from meshwright.run.cluster.gang import GangSize
from meshwright.run.cluster.island import IslandLimits
from meshwright.run.cluster.local_engine import LocalEngine, ThreadConnection
from meshwright.run.cluster.tenants import Tenant

TOKEN = "MESHWRIGHT_TOKEN"
"""The environment variable in which commands look for the tenant's token."""

_ADDRESS = re.compile(r"auto|\w+://.+|[\w.\-]+:\d{2,5}")
_LOCAL = re.compile(r"local:(\d+)x(\d+)")


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a cluster that is started.

    count: processes. devices: of each; 0 for all that a process finds.
    platform: "cpu", "cuda" or "tpu". resources: of each, as options of Ray such as
        {"num_gpus": 8}.
    """

    count: int = 1
    devices: int = 0
    platform: str = "cpu"
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])


def cluster(
    where: str = "inline",
    *,
    token: str = "",
    tenants: tuple[Tenant, ...] = (),
    workers: Workers | None = None,
    limits: IslandLimits | None = None,
    starts: bool = True,
) -> Cluster:
    """A cluster to run steps on: its workers are started, or found.

    where: "inline" for the devices of this process, without Ray; "local:4x2" for 4
        processes of 2 devices on this machine; "ray://head:10001" or another address of
        a Ray cluster, whose controller is started if there is none.
    token: that of the tenant. tenants: who may use a cluster that is started; by
        default one, an operator, whose token is `token`.
    workers: of a cluster at an address, if it is started. starts: whether it may be.
    """
    own = tenants or (Tenant("default", token, is_operator=True),)
    limits = limits or IslandLimits()
    if where == "inline":
        return Cluster(
            ThreadConnection(
                lambda: Controller(LocalEngine(), GangSize(1, 0), own, limits=limits)
            ),
            token,
        )
    from meshwright.run.cluster.ray_connection import connect
    from meshwright.run.cluster.ray_engine import RayEngine

    found, workers, address = _LOCAL.fullmatch(where), workers or Workers(), where
    if found:
        workers, address = Workers(int(found[1]), int(found[2])), None
    elif not _ADDRESS.fullmatch(where):
        raise ClusterError(
            f"cluster {where!r}; wanted 'inline', 'local:4x2' for 4 processes of 2 "
            "devices, or an address of Ray: 'auto', 'host:6379' or 'ray://host:10001'"
        )
    engine = None
    if starts:
        resources = {"num_cpus": 0, **workers.resources}
        engine = RayEngine(workers.platform, resources)
    size = GangSize(workers.count, workers.devices)
    return Cluster(connect(address, engine, size, own, limits), token)


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """The tenants of a TOML file, one table [[tenant]] each; `ClusterError` if wrong."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot read tenants from {path}: {error}") from None
    kinds = get_type_hints(Tenant)
    found: list[Tenant] = []
    for number, table in enumerate(tables.get("tenant", []), start=1):
        for name, value in table.items():
            kind = kinds.get(name)
            if kind is None:
                near = did_you_mean(name, kinds) or f"; there are {', '.join(kinds)}"
                raise ClusterError(
                    f"{path}: tenant {number} has no entry {name!r}{near}"
                )
            allowed = (int, float) if kind is float else (kind,)
            if type(value) not in allowed:
                raise ClusterError(
                    f"{path}: {name} of tenant {number} is {value!r}; wanted a "
                    f"{kind.__name__}"
                )
        if "name" not in table:
            raise ClusterError(f"{path}: tenant {number} has no name")
        fields: dict[str, Any] = {"token": "", **table}
        found.append(Tenant(**fields))
    names = [each.name for each in found]
    if not found or len(set(names)) < len(names):
        raise ClusterError(
            f"{path}: tenants {names}; wanted one or more, each named once"
        )
    return tuple(found)
