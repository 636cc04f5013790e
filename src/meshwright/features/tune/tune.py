"""`tune`: search for the array layouts or loop tiles that a compiler runs fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import jax

from meshwright.app.check.sample import sample_arguments
from meshwright.app.output.progress import show_progress
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.errors import PlanError
from meshwright.features.tune.tune_layouts import (
    apply_layouts,
    on_one_device,
    tune_layouts,
)
from meshwright.partitioner.decide import Decided

if TYPE_CHECKING:
    from meshwright.features.tune.tiles.tuned_tiles import TunedTiles
    from meshwright.features.tune.tuned_layouts import TunedLayouts


IREE = "iree-cpu"
"""The backend for which `tune` searches tile sizes; for all others it tunes layouts."""

_BUDGETS = {IREE: 20}
_BUDGET = 60


@overload
def tune(  # pyright: ignore[reportOverlappingOverload]  a backend in a variable: layouts
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    backend: Literal["iree-cpu"],
    budget: int | None = None,
    seed: int = 0,
    progress: bool = True,
    resume: str | PathLike[str] | None = None,
    timeout_s: float | None = None,
) -> TunedTiles: ...


@overload
def tune(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None = None,
    *,
    backend: str = "tpu-v5e",
    budget: int | None = None,
    seed: int = 0,
    progress: bool = True,
    resume: str | PathLike[str] | None = None,
    timeout_s: float | None = None,
) -> TunedLayouts: ...


def tune(  # noqa: PLR0913  the options of a search
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None = None,
    *,
    backend: str = "tpu-v5e",
    budget: int | None = None,
    seed: int = 0,
    progress: bool = True,
    resume: str | PathLike[str] | None = None,
    timeout_s: float | None = None,
) -> TunedLayouts | TunedTiles:
    """The function with the cheapest layouts of its arrays, or the fastest tiles.

    fn: a function of pytrees, or a plan of `mw.partition` or `mw.autoplan`, whose program
        of one device is tuned. args: positional arguments of `fn`, arrays or
        `jax.ShapeDtypeStruct`s; none for a plan.
    backend: "tpu-v5e" and other TPUs, whose compiler estimates cycles and needs no TPU
        (`meshwright[tpu]`), or "xla-cpu", which measures on this machine: both choose
        layouts. "iree-cpu" chooses tiles of the kernels that IREE compiles for this CPU,
        by measurement (`meshwright[iree]`); it takes functions only.
    budget: number of programs to compile, 60 by default. For "iree-cpu": number of tilings
        to measure per kernel, 20 by default. For a TPU, the same seed gives the same
        result.
    resume: a file that stores the result of each trial. An interrupted search continues
        from it, and tiles are reused for kernels that occur in several programs.
    timeout_s: seconds for one compilation, 300 by default; 30 for a kernel of IREE.
    The result is called like `fn`. It is never slower than the default layouts, than
    `Layout.AUTO` for the arguments, or than IREE's own tiles, by the backend's figures.
    Ctrl-C ends the search with the best result so far.
    """
    path = None if resume is None else Path(resume)
    limit = _BUDGETS.get(backend, _BUDGET) if budget is None else budget
    if backend == IREE:
        return _tune_tiles(fn, args, (limit, seed, timeout_s or 30.0, path), progress)
    decided = _decided(fn, args)
    with show_progress(f"tuning layouts for {backend}") as show:
        tuned = tune_layouts(
            decided,
            backend,
            limit,
            seed,
            timeout_s=timeout_s or 300.0,
            journal=path,
            show=show if progress else lambda text: None,
        )
    return _jitted_if_default(fn, tuned)


def _tune_tiles(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None,
    limits: tuple[int, int, float, Path | None],
    progress: bool,
) -> TunedTiles:
    from meshwright.features.tune.tiles.kernel_search import TileOptions
    from meshwright.features.tune.tiles.tune_tiles import tune_tiles

    if isinstance(fn, PlanRecord):
        raise PlanError(
            "a plan runs on many devices, and IREE's tiles are tuned for one CPU: give "
            "the function and its arguments, mw.tune(fn, args, backend='iree-cpu')"
        )
    function, arguments = _function_of(fn, args)
    options = TileOptions(*limits)
    arrays = sample_arguments(function, arguments, options.seed)
    with show_progress("tuning tiles") as show:
        return tune_tiles(
            function,
            arrays,
            options,
            show if progress else lambda text: None,
        )


def with_layouts(
    fn: Callable[..., Any] | PlanRecord,
    args: Sequence[Any] | None,
    layouts: TunedLayouts,
) -> TunedLayouts:
    """The function or plan with layouts that `tune` found for it and that JSON stored."""
    return _jitted_if_default(fn, apply_layouts(_decided(fn, args), layouts))


def _jitted_if_default(
    fn: Callable[..., Any] | PlanRecord, tuned: TunedLayouts
) -> TunedLayouts:
    """The tuned function, with a plain `jax.jit` function if tuning chose no layout.

    A call of a `jax.jit` function takes some per cent less time than one of a tuned
    function.
    """
    is_default = not tuned.layouts and tuned.baseline == "default"
    if isinstance(fn, PlanRecord) or not is_default:
        return tuned
    jitted = fn if hasattr(fn, "lower") else jax.jit(fn)
    return replace(tuned, fn=jitted)


def _decided(
    fn: Callable[..., Any] | PlanRecord, args: Sequence[Any] | None
) -> Decided:
    if isinstance(fn, PlanRecord):
        if args is not None:
            raise PlanError("a plan has its arguments already; give the plan alone")
        return program_of(fn)
    return on_one_device(*_function_of(fn, args))


def _function_of(
    fn: Callable[..., Any], args: Sequence[Any] | None
) -> tuple[Callable[..., Any], Sequence[Any]]:
    if not callable(fn):
        raise PlanError(f"tune wants a function or a plan, got {fn!r:.60}")
    if args is None:
        raise PlanError("tune wants the arguments of the function: mw.tune(fn, args)")
    return fn, args
