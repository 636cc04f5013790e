"""Addresses of Ray: which ones stay within this machine, and how a process joins one."""

import contextlib
import os
import socket
import warnings
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from meshwright.errors import ClusterError

NAMESPACE = "meshwright"

_STARTS = 3
"""Number of attempts to start Ray."""

_REACH_S = 10.0
"""Seconds within which the machine of an address must answer."""

_LOOPBACK = "127.0.0.1"
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable of Ray. Without it, Ray on macOS and Windows serves this machine
alone; where it is 0, Ray does so on Linux, too. An address of 127.0.0.1 does not suffice:
Ray replaces it by one that other machines reach, and listens on all interfaces."""

_NICENESS = "RAY_worker_niceness"
"""Environment variable of Ray: how nice its workers are; by default 15, so that they starve
beside other programs (the first step of a small model took 288 s for 77)."""


def join_ray(ray: Any, address: str | None) -> None:
    """Join the Ray at an address, or start one for this machine alone.

    Ray forks to start its processes. JAX's warning about forks is ignored, since these
    processes run other programs at once and never enter JAX.
    """
    if address not in (None, "auto"):
        _require_reachable(address)
    try:
        is_local = address is None or is_of_this_machine(address)
        if address is not None and is_local:
            _take_token_of_this_machine()
        where = _on_loopback() if is_local else contextlib.nullcontext()
        with where, _at_own_priority(), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", r"os\.fork\(\) was called", RuntimeWarning
            )
            _init(ray, address)
    except (ConnectionError, ray.exceptions.RaySystemError) as error:
        raise ClusterError(
            f"there is no Ray at {address!r}, or it wants its token ({_line(error)}); "
            "start workers with meshwright cluster start, or set RAY_AUTH_MODE=token"
        ) from error


def _init(ray: Any, address: str | None) -> None:
    """Start or join Ray; tries again if it has not started in time on a busy machine.

    Ray gives its processes 30 s, and raises the class `Exception` itself afterwards.
    """
    for attempt in range(1, _STARTS + 1):
        try:
            ray.init(
                address,
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
            )
        except Exception as error:
            if type(error) is not Exception:
                raise
            if attempt == _STARTS:
                raise ClusterError(
                    f"Ray did not start in {_STARTS} attempts ({_line(error)}); its "
                    "processes have 30 s each time, too little on a busy machine: try "
                    "again later, or join a Ray that runs already"
                ) from error
            line = f"Ray has not started ({_line(error)}); attempt {attempt + 1}"
            Console(stderr=True).print(line, soft_wrap=True)
        else:
            return


def _line(error: Exception) -> str:
    """The first sentence of an error; Ray's next ones name options that we do not have."""
    return str(error).partition(". ")[0]


def _require_reachable(address: str) -> None:
    """Raise `ClusterError` at once if nothing listens; Ray itself would try for minutes."""
    client, place = "ray://", address.removeprefix("ray://")
    if address.startswith(client) and find_spec("grpc") is None:
        raise ClusterError(
            f"{address} is an address of Ray Client, which needs grpcio; pip install "
            "'ray[client]', or 'meshwright[cluster]', which has it"
        )
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"nobody answers at {address} ({error}); start Ray there with ray start "
            "--head, or workers of this machine with meshwright cluster start"
        ) from None


def is_of_this_machine(address: str) -> bool:
    """Whether an address is that of a Ray started for this machine only."""
    services: Any = import_module("ray._private.services")
    if address == "auto":
        address = services.get_ray_address_from_environment("auto", None) or ""
    host, _, port = address.rpartition(":")
    found = f"{_LOOPBACK}:{port}"  # as Ray itself names it
    return host in (_LOOPBACK, "localhost") and found in services.find_gcs_addresses()


def _take_token_of_this_machine() -> None:
    """Use the Ray token in this user's folder; Ray itself does so for "auto" only."""
    found: Any = import_module("ray._private.authentication.authentication_token_setup")
    found.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


@contextlib.contextmanager
def _on_loopback() -> Generator[None]:
    """A context in which Ray listens, and is joined, at the loopback address only."""
    constants: Any = import_module("ray._private.ray_constants")
    known, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        with _variable(_CLUSTERS, "0"):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = known


def _at_own_priority() -> contextlib.AbstractContextManager[None]:
    """A context in which a Ray that starts gives workers the priority of this process."""
    return _variable(_NICENESS, os.environ.get(_NICENESS, "0"))


@contextlib.contextmanager
def _variable(name: str, value: str) -> Generator[None]:
    """A context in which an environment variable has a value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
