"""`meshwright cluster`: start the workers of a cluster, look at them, and end them."""

import contextlib
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from meshwright.app.output.progress import show_progress
from meshwright.errors import ClusterError
from meshwright.features.cluster.client import Cluster
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.start import (
    TOKEN,
    Workers,
    cluster,
    read_tenants,
    start_cluster,
)

cluster_command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Start the workers of a cluster, look at them, and end them.",
)

Address = Annotated[
    str, Option("--address", help="of Ray; by default the one of this machine")
]
Token = Annotated[
    str, Option("--token", envvar=TOKEN, help="of the tenant", show_default=False)
]


@cluster_command.command("start")
def start(
    workers: Annotated[int, Option(min=1, help="processes")] = 1,
    devices: Annotated[int, Option(min=0, help="of each; 0 for all that it finds")] = 0,
    platform: Annotated[str, Option(help="cpu, cuda or tpu")] = "cpu",
    tenants: Annotated[
        Path | None, Option(help="TOML file, see docs/howto/cluster.md")
    ] = None,
    address: Annotated[
        str, Option(help="of a running Ray, where the cluster stays for others")
    ] = "",
) -> None:
    """Start workers and their controller, and print how clients find them.

    Without --address, Ray is started on this machine, and ends with this command, by
    Ctrl-C or `meshwright cluster stop`.
    """
    if platform == "cpu" and not devices:
        raise typer.BadParameter("give --devices: CPUs have as many as you like")
    users = (
        read_tenants(tenants) if tenants else (Tenant("default", "", is_operator=True),)
    )
    users = tuple(
        each if each.token else replace(each, token=secrets.token_urlsafe(16))
        for each in users
    )
    if not any(each.is_operator for each in users):
        raise ClusterError(
            "no tenant is an operator, who may stop the cluster; add is_operator = true "
            "to one"
        )
    operator = next(each for each in users if each.is_operator)
    size = Workers(workers, devices, platform)
    where = address or f"local:{workers}x{devices}"
    client = start_cluster(where, token=operator.token, tenants=users, workers=size)
    with show_progress("starting workers"):
        client.wait_until_ready()
    print(client.status())
    if address:
        print(f"address: {client.address}, with RAY_AUTH_MODE=token")
    else:
        print(
            f"address: auto, or {client.address} beside others; of this machine alone"
        )
    for each in users:
        print(f"{each.name}: {TOKEN}={each.token}")
    sys.stdout.flush()
    if not address:
        _stay(client)


def _stay(client: Cluster) -> None:
    """Wait until the cluster is stopped by a client; stop it at Ctrl-C."""
    try:
        while True:
            time.sleep(1.0)
            client.status()
    except KeyboardInterrupt:
        print("ending the workers", file=sys.stderr)
    except ClusterError:
        print("the cluster was stopped", file=sys.stderr)
    finally:
        with contextlib.suppress(ClusterError):  # its controller may be gone
            client.close()


@cluster_command.command("status")
def status(
    address: Address = "auto",
    token: Token = "",
    events: Annotated[int, Option(min=0, help="last ones to show")] = 10,
) -> None:
    """Print the workers, the tenants, and the last events."""
    with cluster(address, token=token, starts=False) as client:
        print(client.status())
        for event in client.events()[-events:] if events else []:
            print(event)


@cluster_command.command("resize")
def resize(
    workers: Annotated[int, Argument(min=1, help="processes")],
    address: Address = "auto",
    token: Token = "",
) -> None:
    """Change the number of workers; trainings continue from their last checkpoint."""
    with cluster(address, token=token, starts=False) as client:
        client.resize(workers)
        with show_progress("starting workers"):
            client.wait_until_ready()
        print(client.status())


@cluster_command.command("stop")
def stop(address: Address = "auto", token: Token = "") -> None:
    """End the workers and the controller."""
    with cluster(address, token=token, starts=False) as client:
        client.stop()
    print("stopped")
