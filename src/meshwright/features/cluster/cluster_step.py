"""Partitioned functions that run on a slice (devices) of a cluster."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from meshwright.app.check.report import CheckReport
from meshwright.app.step.specialized import Specialized
from meshwright.errors import ClusterError
from meshwright.features.cluster.client import Slice, forbidden_numbers
from meshwright.features.cluster.remote_array import RemoteArray
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.program.analysis.python_calls import python_calls
from meshwright.program.capture import capture
from meshwright.program.capture.arguments import require_arrays
from meshwright.program.capture.donation import require_separate
from meshwright.program.ir import Program, num_bytes
from meshwright.run.compilers.confirm import (
    DeviceStep,
    abstract_mesh,
    export_jitted,
    export_step,
    require_module,
)
from meshwright.run.local.spmd import named_shardings


class LocalStep(Protocol):
    """The interface of the partitioned function in this process, which traces and plans."""

    __name__: str
    __doc__: str | None

    def specialize(self, args: Any, kwargs: Any) -> tuple[Specialized, list[Any]]: ...
    def plan(self, *args: Any, **kwargs: Any) -> Any: ...
    def find_state(
        self,
        init_fn: Callable[..., Any],
        args: tuple[Any, ...],
        argnum: int | Sequence[int] | None,
    ) -> tuple[Specialized, tuple[Any, Sequence[str] | None]]: ...


class ClusterStep:
    """A partitioned function whose calls run on a slice (devices) of a cluster."""

    def __init__(self, step: LocalStep, on: Slice) -> None:
        self._step = step
        self._slice = on
        self._programs: dict[Any, int] = {}
        self.__name__ = step.__name__
        self.__doc__ = step.__doc__

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The plan for these arguments; see `Partitioned.plan`."""
        return self._step.plan(*args, **kwargs)

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare the workers' outputs with the original's on one device of this process.

        Unlike `Partitioned.check`, it does not compare narrow floats in float32, too.
        """
        specialized, leaves = self._step.specialize(args, kwargs)

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            return self._slice.fetch(self._call(specialized, leaves))

        here = [x.result() if isinstance(x, RemoteArray) else x for x in leaves]
        return specialized.check_run(run, here)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start the step on the workers, and return handles to its results.

        Arguments that are arrays of this process are sent to the workers.
        """
        specialized, leaves = self._step.specialize(args, kwargs)
        results = self._call(specialized, leaves)
        return jax.tree_util.tree_unflatten(specialized.captured.out_tree, results)

    def _call(
        self, specialized: Specialized, leaves: Sequence[Any]
    ) -> list[RemoteArray]:
        """Handles to the flat results, for the flat leaves of the arguments."""
        captured = specialized.captured
        require_arrays(captured.paths, leaves)
        require_separate(captured.paths, leaves, captured.donated)
        key = specialized, forbidden_numbers()
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = _define(specialized, self._slice)
        inputs = [self._slice.put(leaf) for leaf in leaves]
        return self._slice.call(program, inputs, captured.out_avals, captured.donated)

    def init(
        self,
        init_fn: Callable[..., Any],
        *args: Any,
        argnum: int | Sequence[int] | None = None,
    ) -> Any:
        """Handles to the state `init_fn(*args)`, which the workers compute.

        The values of `args` are sent as constants of the program. See `Partitioned.init`.
        """
        step, state = self._step.find_state(init_fn, args, argnum)
        shardings = step.state_shardings(*state, step.decided.lowered.inputs)
        flat, tree = jax.tree_util.tree_flatten(shardings)

        def initial() -> tuple[Any, ...]:
            return tuple(jax.tree_util.tree_leaves(init_fn(*args)))

        cut = named_shardings(abstract_mesh(step.mesh), flat)
        jitted = jax.jit(initial, out_shardings=cut)
        exported = _exported(
            lambda: export_jitted(jitted, (), self._slice.platform),
            lambda: capture(initial, ()).program,
            "init_fn",
        )
        types = jax.tree_util.tree_leaves(state[0])
        program = self._slice.define(
            ProgramCode(exported, step.mesh.sizes, (), tuple(flat), "init_fn"),
            output_bytes=[
                each.dtype.itemsize * math.prod(s.shard_shape(each.shape))
                for each, s in zip(types, cut, strict=True)
            ],
        )
        results = self._slice.call(program, (), types)
        self._slice.forget(program)
        return jax.tree_util.tree_unflatten(tree, results)


def step_on_slice(step: LocalStep, on: Slice) -> ClusterStep:
    """The partitioned function `step`, whose calls run on the slice `on` of a cluster."""
    return ClusterStep(step, on)


def _define(step: Specialized, on: Slice) -> int:
    """Define a step's device program in the cluster; returns the program's number.

    Raises `ClusterError` for a program that calls Python, which only this process can run,
    and `CompilerError` if flatbuffers, the format of the message, is not installed.
    """
    lowered, captured = step.decided.lowered, step.captured
    device_step = DeviceStep(lowered, captured.avals, captured.donated)
    exported = _exported(
        lambda: export_step(device_step, on.platform),
        lambda: lowered.program,
        captured.name,
    )
    sizes, name = lowered.mesh.sizes, captured.name
    return on.define(
        ProgramCode(exported, sizes, lowered.inputs, lowered.outputs, name),
        map(num_bytes, lowered.program.inputs),
        map(num_bytes, lowered.program.outputs),
        captured.donated,
    )


def _exported(
    export: Callable[[], bytes], program: Callable[[], Program], name: str
) -> bytes:
    """The serialized program, with clear errors if it cannot be serialized.

    program: returns the program, in which to look for the reason.
    """
    require_module("flatbuffers", "a step on a cluster", "cluster")
    try:
        return export()
    except (NotImplementedError, ValueError) as error:
        calls = python_calls(program())
        if not calls:
            raise
        raise ClusterError(
            f"{name} calls Python ({calls[0].kind} at {calls[0].source}), which only this "
            "process has, and no worker; remove the call, return the value and look at it "
            "here, or run on the devices of this process"
        ) from error
