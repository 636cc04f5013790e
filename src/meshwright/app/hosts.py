"""One search for all processes of `jax.distributed`: only process 0 searches.

The result goes to the other processes through the key-value store of JAX's coordination
service, in pieces, since the service limits the size of a message.
"""

import itertools
import pickle
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import jax

from meshwright.app.explain.diff import diff
from meshwright.app.make_plan import make_plan
from meshwright.app.partition import partition
from meshwright.app.plan import Plan
from meshwright.errors import MeshwrightError, PlanError
from meshwright.jax_private import process_group
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.request import ResolvedRequest, SearchRequest

_PIECE_BYTES = 2**20
"""Bytes per entry of the key-value store, which may refuse messages of more than 4 MiB."""

_POLL_S = 0.2
"""Seconds between two polls of the key-value store; Ctrl-C takes effect in between."""

_OPTIONS = (
    "most_axes", "objective", "memory", "budget_s", "experts", "search", "seed", "confirm",
    "loops", "donate_argnums",
)  # fmt: skip
"""Options of a search that must be equal in all processes; compared by their `repr`."""

_calls = itertools.count()
"""Counter that numbers the searches of this process. All processes run the same program, so
that a search has the same number in each.
"""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The processes that take part in one search, seen from one of them.

    index: index of this process. count: number of processes.
    number: sequence number of the search, which keeps its store entries apart from others.
    """

    store: Any
    index: int
    count: int
    number: int

    @property
    def _key(self) -> str:
        return f"meshwright/plan/{self.number}"

    def send(self, asked: Sequence[str], result: object) -> None:
        """Send the search's result to all other processes; called by process 0.

        asked: lines that describe the search, as `asked_for` makes them.
        result: the search's result, or the exception that ended the search.
        """
        text = zlib.compress(pickle.dumps((tuple(asked), result)))
        pieces = range(0, len(text), _PIECE_BYTES)
        for number, start in enumerate(pieces):
            piece = text[start : start + _PIECE_BYTES]
            self.store.key_value_set_bytes(f"{self._key}/pieces/{number:06d}", piece)
        self.store.key_value_set_bytes(f"{self._key}/sent/all", b"1")

    def receive(self, asked: Sequence[str], within_s: float) -> Any:
        """The search's result that process 0 sent.

        An error that ended the search in process 0 is raised here, too.
        asked: this process's description of the search, as `asked_for` makes it.
        Raises `PlanError` if process 0 searches for something else, or sends nothing within
        `within_s` seconds.
        """
        ends = time.monotonic() + within_s
        while not self.store.key_value_dir_get_bytes(f"{self._key}/sent/"):
            if time.monotonic() >= ends:
                raise PlanError(
                    f"process {self.index} has waited for {within_s:.0f} s for the plan of "
                    "process 0; call autoplan in every process, or plan in one, save the "
                    "plan, and load it in the others"
                )
            time.sleep(_POLL_S)
        pieces = self.store.key_value_dir_get_bytes(f"{self._key}/pieces/")
        text = b"".join(piece for _, piece in sorted(pieces))
        wanted, result = pickle.loads(zlib.decompress(text))
        for theirs, ours in zip_longest(wanted, asked):
            if theirs != ours:
                raise PlanError(
                    f"process {self.index} asked for another plan than process 0, for "
                    f"{ours} instead of {theirs}; call autoplan with the same arguments "
                    "and in the same order in every process"
                )
        if isinstance(result, MeshwrightError):
            raise result
        if isinstance(result, BaseException):
            raise PlanError(f"the search of process 0 ended with {result!r}")
        return result


def hosts_of_search() -> Hosts | None:
    """The processes that take part in the next search; `None` if there is only one."""
    group = process_group()
    if group is None:
        return None
    store, index, count = group
    return Hosts(store, index, count, next(_calls))


def found_by_one(hosts: Hosts, asked: Sequence[str], find: Callable[[], Plan]) -> Plan:
    """The plan of `find`, which is called in process 0 only, and sent with its search.

    asked: lines that describe the search, so that receivers can check that they want the
        same.
    """
    try:
        plan = find()
    except BaseException as error:
        hosts.send(asked, error)
        raise
    hosts.send(asked, (plan, plan.search))
    return plan


def asked_for(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
) -> list[str]:
    """Lines of text that describe a function, its arguments and the options of its search.

    Processes compare these lines to check that they search for the same plan. `repr` would
    not do, since it contains memory addresses.
    """
    machine, tactics = resolved.machine, [str(each) for each in request.tactics]
    lines = [
        f"function {getattr(fn, '__qualname__', type(fn).__name__)}",
        f"machine {machine.name} of {machine.num_devices} devices",
        f"mesh {resolved.mesh}",
        f"tactics {tactics}",
    ]
    lines += [f"{name}={getattr(request, name)!r}" for name in _OPTIONS]
    for path, leaf in jax.tree_util.tree_leaves_with_path(tuple(args)):
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        shape = list(getattr(leaf, "shape", ()))
        lines.append(f"argument {jax.tree_util.keystr(path)}: {dtype}{shape}")
    return lines


def rebuild_plan(
    fn: Callable[..., Any],
    args: Sequence[Any],
    request: SearchRequest,
    resolved: ResolvedRequest,
    search: SearchResult,
    first_plan: Plan,
) -> Plan:
    """The plan that process 0 found and sent, rebuilt for this process's function."""
    best = search.candidates[0]
    step = partition(
        fn, best.mesh, donate_argnums=request.donate_argnums, loops=request.loops
    )
    program = step.capture(*args)
    plan = make_plan(program, best.mesh, best.tactics, Gather.SHARED)
    plan = plan.on(resolved.machine, resolved.place, request.donates_state)
    plan = replace(plan, search=search)
    if plan.to_json() != first_plan.to_json():
        raise PlanError(
            "the function or its constants differ between process 0 and this one, so that "
            f"the plan of process 0 gives another step here:\n{diff(first_plan, plan)}"
        )
    return plan
