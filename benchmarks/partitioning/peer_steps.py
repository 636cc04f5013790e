"""The peers of `peers.py`: one train step, compiled in each of several ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import meshwright as mw
from benchmarks.partitioning.peer_cases import Case, built
from meshwright.errors import MeshwrightError

try:  # google-parallax, measured if it is installed
    from parallax.sharding.auto_shard import get_shardings
except ImportError:
    get_shardings = None

DEVICES = 8
BASE = "jit, data parallel"


@dataclass(frozen=True, slots=True)
class Peer:
    """A compiled step with its arguments on the devices.

    plan: for predictions; `None` if the peer is not ours to predict.
    """

    name: str
    mesh: str
    compiled: Any
    placed: tuple[Any, ...]
    plan: mw.Plan | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A peer that refused the program, and its message."""

    name: str
    why: str


def stock(fn: Callable[..., Any], args: Any, given: Any, results: Any) -> Any:
    """The step compiled by `jax.jit` with shardings only, and its placed arguments."""
    placed = jax.device_put(args, given)
    jitted = jax.jit(fn, in_shardings=given, out_shardings=results)
    return jitted.lower(*placed).compile(), placed


def annotated(
    case: Case, name: str, mesh: jax.sharding.Mesh, cut_fn: Callable[..., Any]
) -> Peer:
    """Stock jit: state leaves cut by `cut_fn(path, leaf)`, the batch on dim 0."""
    fn, (state, batch) = built(case)

    def state_sharding(path: Any, leaf: Any) -> NamedSharding:
        return NamedSharding(mesh, cut_fn(jax.tree_util.keystr(path), leaf))

    states = jax.tree_util.tree_map_with_path(state_sharding, state)
    rows = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec("data")), batch)
    compiled, placed = stock(fn, (state, batch), (states, rows), (states, None))
    return Peer(name, str(mw.Mesh(dict(mesh.shape))), compiled, placed)


def whole(path: str, leaf: Any) -> PartitionSpec:
    """Data parallelism: a copy on every device."""
    del path, leaf
    return PartitionSpec()


def largest_dim(path: str, leaf: Any) -> PartitionSpec:
    """FSDP: cut on the largest dim that the devices divide, if there is one."""
    del path
    dims = [d for d, size in enumerate(leaf.shape) if size % DEVICES == 0]
    if not dims:
        return PartitionSpec()
    dim = max(dims, key=lambda d: leaf.shape[d])
    return PartitionSpec(*[None] * dim, "data")


def by_hand(case: Case) -> Iterator[Peer]:
    """Data parallelism and FSDP by annotations, predicted by our tactics for them."""
    fn, args = built(case)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    batch = mw.data_parallel("data", inputs="batch.**")
    for name, cut_fn, tactics in (
        (BASE, whole, [batch]),
        ("jit, FSDP", largest_dim, [batch, mw.fsdp("data")]),
    ):
        peer = annotated(case, name, mesh, cut_fn)
        plan = mw.partition(fn, {"data": DEVICES}, tactics).plan(*args)
        yield Peer(name, peer.mesh, peer.compiled, peer.placed, plan)


def auto_specs(fn: Callable[..., Any], params: Any, batch: Any) -> dict[str, Any]:
    """The specs that google-parallax gives the leaves of `params`, by path.

    Leaves are given as a tuple, since it mistakes a list among parameters for its own.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(params)
    leaves = tuple(leaf for _, leaf in paths)

    def of_leaves(leaves: Any, batch: Any) -> Any:
        return fn(treedef.unflatten(leaves), batch)

    (specs, _), _ = get_shardings(of_leaves, leaves, batch, min_shard_size=2)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    return dict(zip(names, specs, strict=True))


def parallax(case: Case) -> Peer | Refusal:
    """AUTO on its own mesh, 4 by 2: of the step, else of the model's forward pass.

    From the forward pass, moments are cut as the parameters whose paths they end with.
    """
    name = "google-parallax, AUTO"
    if get_shardings is None:
        return Refusal(name, "not installed")
    fn, (state, batch) = built(case)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    tries = [(fn, state)] + ([(case.forward, state.params)] if case.forward else [])
    missing: list[str] = []
    for traced, params in tries:
        try:
            with jax.set_mesh(mesh):
                specs = auto_specs(traced, params, batch)
        except AssertionError as error:  # its parser's, with the equation or without
            op = re.search(r" = (\w+)\[", str(error))
            missing.append(op[1] if op else "gather")
            continue
        return annotated(case, name, mesh, partial(spec_of, specs))
    return Refusal(name, f"no rule for {', '.join(dict.fromkeys(missing))}")


def spec_of(specs: Mapping[str, Any], path: str, leaf: Any) -> Any:
    """The spec of the longest path that `path` ends with; whole if there is none."""
    del leaf
    own = [known for known in specs if path.endswith(known)]
    return specs[max(own, key=len)] if own else PartitionSpec()


def ours(
    case: Case, name: str, machine: mw.Machine, budget_s: float
) -> Iterator[Peer | Refusal]:
    """The plan found for a machine; then XLA alone, from its inputs and outputs."""
    fn, args = built(case)
    try:
        found = mw.autoplan(fn, args, machine=machine, budget_s=budget_s)
    except MeshwrightError as error:
        yield Refusal(f"autoplan, {name}", str(error))
        return
    step = mw.partition(fn, found.mesh, found.tactics)
    plan = step.plan(*args)
    placed = jax.device_put(args, plan.in_shardings)
    compiled = step.lower(*placed).compile()
    mesh = str(plan.mesh)
    yield Peer(f"autoplan, {name}", mesh, compiled, placed, plan)
    alone, placed = stock(fn, args, plan.in_shardings, plan.out_shardings)
    yield Peer(f"XLA from these, {name}", mesh, alone, placed)
