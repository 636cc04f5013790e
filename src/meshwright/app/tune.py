"""`tune`: layouts of a function's values, or of a plan's, that its compiler prefers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.app.output.progress import show_progress
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.compile.tune.tune import apply_layouts, on_one_device, tune_layouts
from meshwright.errors import PlanError
from meshwright.partitioner.decide import Decided

if TYPE_CHECKING:
    from meshwright.compile.tune.tuned import TunedLayouts


def tune(  # noqa: PLR0913  the options of a search
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None = None,
    *,
    backend: str = "tpu-v5e",
    budget: int = 60,
    seed: int = 0,
    progress: bool = True,
    resume: str | PathLike[str] | None = None,
    timeout_s: float = 300.0,
) -> TunedLayouts:
    """The layouts of arguments, results and values in between that cost least.

    fn: a function of pytrees, or a plan of `mw.partition` or `mw.autoplan`, whose
        device program is then tuned on its local shapes. args: positional arguments of
        `fn`, arrays or `jax.ShapeDtypeStruct`s; none for a plan.
    backend: "tpu-v5e" and other TPUs, whose compiler estimates cycles and needs no TPU
        (`meshwright[tpu]`), or "xla-cpu", which measures on this machine.
    budget: number of programs to compile. The same seed gives the same result for the
    TPU.
    resume: a file that stores the result of each trial; an interrupted search continues
    there.
    timeout_s: seconds for one compilation.
    The result is called like `fn`, and is never worse than the better of the default
    and of `Layout.AUTO` arguments. Ctrl-C ends the search with the best layouts so far.
    """
    decided = _decided(fn, args)
    path = None if resume is None else Path(resume)
    with show_progress(f"tuning layouts for {backend}") as show:
        return tune_layouts(
            decided,
            backend,
            budget,
            seed,
            timeout_s=timeout_s,
            journal=path,
            show=show if progress else lambda text: None,
        )


def with_layouts(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None,
    layouts: TunedLayouts,
) -> TunedLayouts:
    """Layouts that were read from JSON, for the function or plan that was tuned."""
    return apply_layouts(_decided(fn, args), layouts)


def _decided(
    fn: Callable[..., Any] | PlanRecord, args: Sequence[Any] | None
) -> Decided:
    if isinstance(fn, PlanRecord):
        if args is not None:
            raise PlanError("a plan has its arguments already; give the plan alone")
        return program_of(fn)
    if not callable(fn):
        raise PlanError(f"tune wants a function or a plan, got {fn!r:.60}")
    if args is None:
        raise PlanError("tune wants the arguments of the function: mw.tune(fn, args)")
    return on_one_device(fn, args)
