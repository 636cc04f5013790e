"""Choose the memory layouts of a program's arrays (`tune_layouts`), and run with them.

A layout is the order of an array's dims in memory, major to minor. Each candidate
program is compiled, and judged by the TPU compiler's estimate of cycles or by its CPU
time.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
from jax.experimental.layout import Format

from meshwright.errors import CompilerError, PlanError, did_you_mean
from meshwright.features.tune.compiler_server.server import (
    CompilerServer,
    cpu_host,
    host_of,
)
from meshwright.features.tune.layouts.compiler_judge import (
    EstimateJudge,
    Judge,
    MeasuringJudge,
    TunedStep,
)
from meshwright.features.tune.layouts.constrain import constrain
from meshwright.features.tune.layouts.gain_model import GainModel
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.layouts.kernel_work import rates_of
from meshwright.features.tune.layouts.layout_search import (
    LayoutOutcome,
    LayoutSearch,
    SearchOptions,
)
from meshwright.features.tune.layouts.problem import LayoutChoice, question_of
from meshwright.features.tune.layouts.shipped_weights import shipped_weights
from meshwright.features.tune.layouts.sites import Site, find_sites
from meshwright.features.tune.tuned_layouts import TunedLayout, TunedLayouts
from meshwright.machine import Machine, Mesh, load_machine, preset_names
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.lower import Gather
from meshwright.program.capture import Captured, capture
from meshwright.run.compilers.confirm import DeviceStep
from meshwright.run.local.spmd import jax_mesh, named_shardings, place, spmd_function

CPU = "xla-cpu"
"""The backend that compiles with XLA for this machine's CPU and times the code."""

_JUDGED = "2"
"""Version of costs in journals; verdicts of another version are not used."""


def on_one_device(fn: Callable[..., Any], args: Sequence[Any]) -> Decided:
    """A function, captured for these arguments and lowered for a single device."""
    captured = capture(fn, args)
    return decide(captured, Mesh({"device": 1}), (), Gather.SHARED)


def tune_layouts(  # noqa: PLR0913  the options of `mw.tune`
    decided: Decided,
    backend: str,
    budget: int,
    seed: int,
    *,
    timeout_s: float = 300.0,
    journal: Path | None = None,
    show: Callable[[str], None] = lambda text: None,
) -> TunedLayouts:
    """Search for the layouts of a lowered program's arrays that cost least.

    budget: largest number of programs to compile.
    journal: file that keeps the cost of every compiled program, so that an interrupted
        search can go on.
    show: function that is called with a line of text about the search's progress.
    """
    program, captured = decided.lowered.program, decided.captured
    sites = {site.name: site for site in find_sites(program, captured.paths)}
    step, num_devices = tuned_step(decided), decided.lowered.mesh.num_devices
    machine = machine_of(backend, num_devices)
    host = host_of(machine) if machine else cpu_host(num_devices)
    fingerprint = _fingerprint(decided)
    with CompilerServer(host, timeout_s) as server:
        judge: Judge = (
            EstimateJudge(server, step, rates_of(machine))
            if machine
            else MeasuringJudge(server, step, seed)
        )
        search = LayoutSearch(
            program,
            sites,
            judge,
            GainModel(sites, shipped_weights("gain_weights.json")),
            SearchOptions(budget, seed, charge=_cycles_per_byte(machine)),
            Journal(journal),
            f"{backend} {_JUDGED} {fingerprint}",
            show,
        )
        outcome = search.run()
    result = _result(outcome, sites, captured, (backend, judge.unit, fingerprint, seed))
    return replace(result, fn=tuned_function(decided, sites, result))


def apply_layouts(decided: Decided, layouts: TunedLayouts) -> TunedLayouts:
    """Layouts that were read from JSON, completed with a function that runs with them.

    Raises `PlanError` if they were tuned for another program than `decided`.
    """
    program = decided.lowered.program
    if layouts.fingerprint != _fingerprint(decided):
        raise PlanError(
            f"these layouts were tuned for another program than {decided.captured.name}, "
            "or for arguments of other shapes; tune it anew"
        )
    sites = {s.name: s for s in find_sites(program, decided.captured.paths)}
    return replace(layouts, fn=tuned_function(decided, sites, layouts))


def _fingerprint(decided: Decided) -> str:
    """A short hash of a program's text and its mesh."""
    whole = f"{decided.lowered.program}\n{decided.lowered.mesh}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def machine_of(backend: str, num_devices: int) -> Machine | None:
    """The TPU machine that a backend's name stands for; `None` for XLA on this CPU."""
    if backend == CPU:
        return None
    names = [CPU, *(n for n in preset_names() if n.startswith("tpu"))]
    if backend not in names:
        raise CompilerError(
            f"no backend {backend!r}{did_you_mean(backend, names)}; there are "
            f"{', '.join(names)}"
        )
    return load_machine(backend, num_devices)


def _cycles_per_byte(machine: Machine | None) -> float:
    """Clock cycles in which main memory moves one byte: the price of unestimated bytes.

    It is 0 on a CPU, where time is measured, and for a chip whose clock rate is
    unknown.
    """
    if machine is None:
        return 0.0
    return (machine.chip.clock_hz or 0.0) / machine.chip.hbm_bytes_per_s


def tuned_step(decided: Decided) -> TunedStep:
    """The device program to compile, with positions of results of fixed layout.

    Donated arguments, and the results that take over their memory, keep the default
    layout.
    """
    captured = decided.captured
    ties = {o: i for o, i in captured.ties.items() if i in captured.donated}
    step = DeviceStep(decided.lowered, captured.avals, captured.donated)
    return TunedStep(step, frozenset(ties))


def _result(
    outcome: LayoutOutcome,
    sites: dict[str, Site],
    captured: Captured,
    labels: tuple[str, str, str, int],
) -> TunedLayouts:
    backend, unit, fingerprint, seed = labels
    return TunedLayouts(
        name=captured.name or "function",
        backend=backend,
        unit=unit,
        default=replace(outcome.default, examples=()),
        auto=replace(outcome.auto, examples=()),
        baseline=outcome.baseline,
        tuned=replace(outcome.verdict, examples=()),
        charged=outcome.charged,
        layouts=tuple(_layout(c, sites[c.site], outcome) for c in outcome.best),
        argument_layouts=_changed(
            captured.paths, outcome.verdict.in_layouts, outcome.default.in_layouts
        ),
        result_layouts=_changed(
            captured.out_paths, outcome.verdict.out_layouts, outcome.default.out_layouts
        ),
        judged=outcome.judged,
        screened=outcome.screened,
        failures=outcome.failures,
        stopped=outcome.stopped,
        history=outcome.history,
        fingerprint=fingerprint,
        seed=seed,
    )


def _layout(choice: LayoutChoice, site: Site, outcome: LayoutOutcome) -> TunedLayout:
    return TunedLayout(
        site=choice.site,
        order=choice.order,
        with_twin=choice.with_twin,
        type=site.type,
        count=len(site.values),
        role=site.role,
        source=site.source,
        gain=outcome.gains.get(choice.site),
    )


def _changed(
    paths: Sequence[str],
    layouts: Sequence[tuple[int, ...] | None],
    default: Sequence[tuple[int, ...] | None],
) -> dict[str, tuple[int, ...]]:
    """The layouts that differ from the default, by path of the argument or result."""
    return {
        path: layout
        for path, layout, usual in zip(paths, layouts, default, strict=True)
        if layout is not None and layout != usual
    }


def tuned_function(
    decided: Decided, sites: dict[str, Site], result: TunedLayouts
) -> Callable[..., Any]:
    """A function with the original's arguments that runs with the chosen layouts.

    It is compiled when it is first called, for this process's devices.
    """
    captured, lowered = decided.captured, decided.lowered
    best = tuple(LayoutChoice(a.site, a.order, a.with_twin) for a in result.layouts)
    question = question_of(lowered.program, sites, best, is_auto=False)
    program = constrain(lowered.program, question.layouts)
    compiled: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        if tree != captured.in_tree:
            raise PlanError(
                f"{result.name} was tuned for arguments of the structure "
                f"{captured.in_tree}; got {tree}"
            )
        if not compiled:
            compiled.extend(
                _compile(replace(lowered, program=program), result, decided)
            )
        jitted, formats = compiled
        placed = [_placed(x, f) for x, f in zip(leaves, formats, strict=True)]
        return jax.tree_util.tree_unflatten(captured.out_tree, jitted(*placed))

    run.__name__ = result.name
    return run


def _placed(leaf: Any, wanted: Any) -> Any:
    """Move an array to the wanted sharding or format (layout and sharding).

    An array that has that sharding or format already is not copied.
    """
    if not isinstance(wanted, Format):
        # `jax.jit` moves an uncommitted array itself, faster than `place` does.
        is_free = isinstance(leaf, jax.Array) and not leaf.committed
        return leaf if is_free else place(leaf, wanted)
    is_array = isinstance(leaf, jax.Array)
    present: Any = cast(Any, leaf).format.layout if is_array else None
    layout, sharding = cast(Any, wanted.layout), cast(Any, wanted.sharding)
    if present is not None and present.major_to_minor == layout.major_to_minor:
        return place(leaf, sharding)
    return jax.device_put(leaf, wanted)


def _compile(lowered: Any, result: TunedLayouts, decided: Decided) -> tuple[Any, Any]:
    """The jitted device program, and each argument's format or sharding."""
    from meshwright.run.compilers.compile_child import format_of

    captured, mesh = decided.captured, jax_mesh(lowered.mesh)
    inputs = [
        format_of(result.argument_layouts.get(path), sharding)
        for path, sharding in zip(
            captured.paths, named_shardings(mesh, lowered.inputs), strict=True
        )
    ]
    outputs = [
        format_of(result.result_layouts.get(path), sharding)
        for path, sharding in zip(
            captured.out_paths, named_shardings(mesh, lowered.outputs), strict=True
        )
    ]
    jitted = jax.jit(
        spmd_function(lowered, mesh),
        in_shardings=tuple(inputs),
        out_shardings=tuple(outputs),
        donate_argnums=captured.donated,
    )
    return jitted, inputs
