"""The result of tuning layouts: the chosen layouts, their gain, and code to paste."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.app.output.table import columns
from meshwright.errors import PlanError
from meshwright.features.tune.layouts.verdict import VERDICTS, Verdict, plain_verdict

_FRAME = dataclasses.replace(
    VERDICTS,
    what="the text is no result of tuning layouts",
    header={"format": "meshwright layouts", "version": 1},
)


@dataclass(frozen=True, slots=True)
class TunedLayout:
    """The layout that was chosen for one site, and its gain.

    A site is a set of values that get one layout, such as one activation of all equal
    layers.

    site: name of the site. order: dims major to minor.
    with_twin: whether the gradients of the site's values get the same layout.
    type: type of each value, such as `bf16[8, 512, 64]`. count: number of values in the
        site.
    role: kinds of op that compute and read the values, such as "dot>dot.lhs".
    source: source line that computes the first value, or the input's path.
    gain: relative cost that this layout saves while the other choices stay; `None` if
        the program without it was not compiled.
    """

    site: str
    order: tuple[int, ...]
    with_twin: bool
    type: str
    count: int
    role: str
    source: str
    gain: float | None


@dataclass(frozen=True, slots=True)
class TunedLayouts:
    """The result of tuning layouts: the chosen layouts, and the cost before and after.

    backend: name of the compiler, such as "tpu-v5e".
    unit: unit of costs: `cycles`, or `of default`, the CPU time over that with default
        layouts.
    default, auto: verdicts on the program without chosen layouts: with arguments and
        results in default layouts, and in layouts that the compiler chooses (JAX:
        `Layout.AUTO`).
    baseline: "default" or "auto", whichever costs less.
    tuned: verdict on the program with the chosen layouts; on the baseline if none were
        better.
    charged: cost of the tuned program, plus a charge for bytes that the compiler moves
        without an estimate of cycles.
    layouts: the chosen layouts.
    argument_layouts, result_layouts: dims major to minor by path, for arguments and
        results whose layout is not the default.
    judged: number of programs compiled.
    screened: number of programs that were optimised without generating code, to predict
        their cost.
    failures: error messages of programs that did not compile.
    stopped: reason for the end of the search. history: least cost after each compiled
        program.
    fingerprint: hash of the program.
    fn: the tuned function of the original's arguments; `None` if read from JSON, see
        `mw.with_layouts`.
    """

    name: str
    backend: str
    unit: str
    default: Verdict
    auto: Verdict
    baseline: str
    tuned: Verdict
    charged: float
    layouts: tuple[TunedLayout, ...]
    argument_layouts: Mapping[str, tuple[int, ...]]
    result_layouts: Mapping[str, tuple[int, ...]]
    judged: int
    screened: int
    failures: tuple[str, ...]
    stopped: str
    history: tuple[float, ...]
    fingerprint: str
    seed: int
    fn: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    @property
    def base(self) -> Verdict:
        """The verdict on the baseline, with which the tuned program is compared."""
        return self.auto if self.baseline == "auto" else self.default

    @property
    def speed_up(self) -> float:
        """Cost of the baseline divided by `charged`, the tuned program's cost."""
        return self.base.cost / self.charged

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tuned function on this process's devices."""
        if self.fn is None:
            raise PlanError(
                "layouts read from JSON have no function; call "
                "mw.with_layouts(fn, args, layouts) with the function that was tuned"
            )
        return self.fn(*args, **kwargs)

    # -- as JSON -----------------------------------------------------------------------

    def to_json(self) -> str:
        """JSON text of everything but the function; `from_json` is the inverse."""
        verdicts = {"default": self.default, "auto": self.auto, "tuned": self.tuned}
        written = {name: plain_verdict(each) for name, each in verdicts.items()}
        return _FRAME.write(self, **written)

    @staticmethod
    def from_json(text: str) -> TunedLayouts:
        """The layouts that `to_json` wrote; `PlanError` for any other text."""
        return _FRAME.read(TunedLayouts, text)

    # -- as text -----------------------------------------------------------------------

    @property
    def code(self) -> str:
        """Python lines that repeat the chosen layouts in the user's own code.

        A value of the backward pass has no line of its own in the user's source. Its
        line here says so; only the tuned function sets its layout.
        """
        return "\n".join(_code_lines(self))

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(tuned: TunedLayouts) -> Iterator[str]:
    judged = f"{tuned.judged} programs compiled of {tuned.screened} screened"
    if tuned.failures:
        judged += f", {len(tuned.failures)} failed"
    yield f"{tuned.name} on {tuned.backend}: {judged}, stopped: {tuned.stopped}"
    rows = [("default", tuned.default), ("AUTO arguments", tuned.auto)]
    rows.append(("tuned", tuned.tuned))
    head = "", tuned.unit, "accessed", "temporary", "async"
    cells = ((name, _cost(verdict.cost), *_sizes(verdict)) for name, verdict in rows)
    yield from columns((head, *cells), ("16", ">14", ">12", ">12", ">7"))
    if not tuned.layouts:
        best = "the default" if tuned.baseline == "default" else "AUTO arguments"
        yield f"nothing better was found than {best}"
        return
    spread = f" ± {100 * tuned.tuned.spread:.1f} %" if tuned.tuned.spread else ""
    yield f"{tuned.speed_up:.3f}x of {tuned.baseline}{spread}"
    for layout in tuned.layouts:
        gain = "" if layout.gain is None else f"  {100 * layout.gain:+.1f} %"
        yield f"  {_named(layout)} {layout.order}{gain}"


def _cost(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}"


def _sizes(verdict: Verdict) -> tuple[str, str, int]:
    accessed = (verdict.bytes_accessed or 0.0) / 2**20
    temporary = verdict.temp_bytes / 2**20
    return f"{accessed:.1f} MiB", f"{temporary:.1f} MiB", verdict.async_copies


def _named(layout: TunedLayout) -> str:
    times = f" x{layout.count}" if layout.count > 1 else ""
    twin = " and its gradient" if layout.with_twin else ""
    return f"{layout.source}: {layout.type}{times} ({layout.role}){twin}"


def _code_lines(tuned: TunedLayouts) -> Iterator[str]:
    yield "from jax.experimental.layout import Format, Layout, with_layout_constraint"
    for title, layouts in (
        ("in_shardings", tuned.argument_layouts),
        ("out_shardings", tuned.result_layouts),
    ):
        if layouts:
            yield f"# for jax.jit({title}=...), by path; other leaves: the default"
            yield f"{title} = {{"
            yield from (
                f"    {path!r}: Format(Layout({order}), sharding),"
                for path, order in layouts.items()
            )
            yield "}"
    for layout in tuned.layouts:
        if not layout.role.startswith("input"):
            yield f"# {_named(layout)}"
            yield f"x = with_layout_constraint(x, Layout({layout.order}))"
