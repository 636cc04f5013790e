"""A partitioned function for one signature of its arguments, from trace to executable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax

from meshwright.app.check.compare_outputs import check_outputs
from meshwright.app.check.report import CheckReport, tolerance_of
from meshwright.app.output.notices import warn_each
from meshwright.app.step.init import find_state, list_arguments
from meshwright.errors import PlanError
from meshwright.jax_private import gpu_for_cudnn
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Recorded, Tactic, decisions_of
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.program.analysis.narrowest_floats import narrowest_floats
from meshwright.program.capture import Captured
from meshwright.program.capture.donation import require_own_memory, require_separate
from meshwright.program.capture.wide_floats import (
    can_widen,
    has_low_precision,
    widen_array,
    widen_floats,
)
from meshwright.run.local.execute import run_program
from meshwright.run.local.spmd import Executable, jax_mesh, make_executable


@dataclass(frozen=True, eq=False)
class Specialized:
    """A function traced, partitioned and compiled for one signature of its arguments.

    Each stage of this is made when it is first used, and kept.
    fn: the original function of the traced (not static) arguments.
    captured: the traced program.
    names: names of the traced positional arguments.
    past_warnings: messages of warnings that are not issued again.
    """

    fn: Callable[..., Any]
    captured: Captured
    names: tuple[str, ...]
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    gather: Gather
    past_warnings: set[str]

    @cached_property
    def decided(self) -> Decided:
        """The sharding decisions and the device program."""
        how = self.mesh, self.tactics, self.gather
        decided = decide(self.captured, *how, workarounds=XLA_WORKAROUNDS)
        warn_each(decided.work.warnings, self.past_warnings)
        return decided

    @cached_property
    def executable(self) -> Executable:
        """The device program, compiled for the mesh, as a function of flat leaves."""
        captured = self.captured
        weak = {i for i, aval in enumerate(captured.out_avals) if aval.weak_type}
        return make_executable(self.decided.lowered, captured.donated, self.mesh, weak)

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result on the mesh's devices, for the leaves of the traced arguments."""
        paths, donated = self.captured.paths, self.captured.donated
        require_separate(paths, leaves, donated)
        placed = self.executable.place(leaves)
        # Placing an array may leave one device's part in the memory of another array. Only
        # that device would then refuse to run, and the others would wait for it.
        if any(placed[i] is not leaves[i] for i in donated):
            require_own_memory(paths, leaves, placed, donated)
        try:
            outputs = self.executable.run(placed)
        except jax.errors.JaxRuntimeError:
            require_own_memory(paths, leaves, placed, donated)
            raise
        return jax.tree_util.tree_unflatten(self.captured.out_tree, outputs)

    def state_shardings(
        self, state: Any, names: Sequence[str] | None, shardings: Sequence[Any]
    ) -> Any:
        """The shardings of a state that is one argument of the step, or a tuple of several.

        state, names: as for `find_state`. shardings: shardings of all arguments' leaves.
        """
        arguments = list_arguments(self.captured, self.names, shardings)
        owners = find_state(arguments, state, names)
        flat = jax.tree_util.tree_leaves([argument.shardings for argument in owners])
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(state), flat)

    # -- the check -----------------------------------------------------------------------

    @cached_property
    def original(self) -> Callable[..., list[Any]]:
        """The unpartitioned function, from flat leaves to flat outputs.

        It is made once, so that JAX compiles it once for all checks.
        """
        fn, tree = self.fn, self.captured.in_tree

        def original(*leaves: Any) -> list[Any]:
            args, kwargs = jax.tree_util.tree_unflatten(tree, leaves)
            return jax.tree_util.tree_leaves(fn(*args, **kwargs))

        return original

    @cached_property
    def wide(self) -> "Specialized | None":
        """This function with all narrower floats as float32, and the same decisions.

        `None` if the program has no narrower floats, or has a `shard_map` of the user's.
        """
        work = self.decided.work
        program = work.graph.program  # tactics have rewritten it already
        if not has_low_precision(program) or not can_widen(program):
            return None
        wide = widen_floats(program)

        def original(*args: Any, **kwargs: Any) -> list[Any]:
            return run_program(wide, jax.tree_util.tree_leaves((args, kwargs)))

        captured = replace(self.captured, program=wide, donated=())
        same = Recorded(decisions_of(work), any_types=True)
        return replace(self, fn=original, captured=captured, tactics=(same,))

    def check(self, leaves: Sequence[Any]) -> CheckReport:
        """The errors of all outputs against the unpartitioned function.

        If the program has floats narrower than float32, float32 versions are compared, too.
        """
        _require_one_process(self.mesh)
        report = self.check_run(self._run_kept, leaves)
        if self.wide is None:
            return report
        pairs = zip(report.outputs, self.check_float32(leaves).outputs, strict=True)
        return CheckReport(tuple(replace(error, wide=wide) for error, wide in pairs))

    def check_run(
        self, run: Callable[[Sequence[Any]], Sequence[Any]], leaves: Sequence[Any]
    ) -> CheckReport:
        """The errors of the outputs of `run` against the unpartitioned function.

        run: a function from the leaves of the arguments to the flat outputs.
        """
        captured = self.captured
        rounding = narrowest_floats(captured.program, tolerance_of)
        with gpu_for_cudnn():  # the original may call it
            return check_outputs(
                captured.out_paths, self.original, run, leaves, rounding
            )

    def check_float32(self, leaves: Sequence[Any]) -> CheckReport:
        """The errors of all outputs, with both programs computed in float32."""
        _require_one_process(self.mesh)
        if self.wide is not None:
            return self.wide.check([widen_array(leaf) for leaf in leaves])
        program = self.captured.program
        if has_low_precision(program) and not can_widen(program):
            raise PlanError(
                "the function has a shard_map, whose floats cannot be widened; use check"
            )
        return self.check(leaves)

    def _run_kept(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, computed so that donated leaves stay valid.

        The function gets copies of the leaves that it consumes.
        """
        kept = list(leaves)
        for i in self.captured.donated:
            kept[i] = kept[i].copy() if hasattr(kept[i], "copy") else kept[i]
        return self.executable(kept)


def _require_one_process(mesh: Mesh) -> None:
    """Raise `PlanError` if a mesh has devices of several processes."""
    if jax_mesh(mesh).is_multi_process:
        raise PlanError(
            f"a check compares with one device of this process, but mesh {mesh} has "
            f"devices of several processes; check in one process, on devices of its own "
            "or virtual ones (XLA_FLAGS=--xla_force_host_platform_device_count="
            f"{mesh.num_devices})"
        )
