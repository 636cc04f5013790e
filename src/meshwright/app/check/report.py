"""The report of a check: the error of each output, and the tolerances for errors.

A check compares the outputs of a partitioned program with those of the original.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from meshwright.app.output import notebook
from meshwright.app.output.collapse import group_by, index_free, merge
from meshwright.app.output.table import Table
from meshwright.program.ir import show_type


@dataclasses.dataclass(frozen=True, slots=True)
class OutputError:
    """The error of one output of the partitioned program.

    error: largest absolute difference, divided by the output's scale (its largest finite
        absolute value, or 1 if that is 0); for integers, bools and keys the share of
        elements that differ.
    tolerance: the largest error that counts as rounding.
    sensitivity: the error of the original program against itself if its inputs change by
        one unit in the last place; measured only if some output exceeds the tolerance of
        its dtype.
    is_ill_conditioned: whether the tolerance comes from the sensitivity, not from a dtype.
    bias: the share by which the output is too large or too small as a whole, beyond what
        chance explains; measured only if the tolerance is large.
    wide: the error of the same output with both programs computed in float32; `None` if
        neither program has narrower floats.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    sensitivity: float | None = None
    is_ill_conditioned: bool = False
    bias: float = 0.0
    wide: OutputError | None = None

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance, also in float32 if that was compared.

        A NaN error is never within the tolerance.
        """
        is_equal = self.error <= self.tolerance and self.bias <= MAX_BIAS
        return is_equal and (self.wide is None or self.wide.ok)

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        note = "  ill-conditioned" if self.is_ill_conditioned else ""
        if self.bias > MAX_BIAS:
            note += f"  off by {self.bias:.1%} as a whole"
        if math.isnan(self.error):
            note += "  all NaN in the original"
        if self.wide is not None:
            note += f"  {self.wide.error:.2e} in float32"
        limit = f"(<= {self.tolerance:.0e})"
        return f"{verdict:5}  {self.error:9.2e}  {limit}  {self.path}{note}"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of comparing a partitioned program with the original, per output."""

    outputs: tuple[OutputError, ...]

    @property
    def ok(self) -> bool:
        """Whether no output differs from the original's by more than rounding explains."""
        return all(output.ok for output in self.outputs)

    @property
    def worst(self) -> float:
        """The largest `error` among the outputs."""
        return max((o.error for o in self.outputs), default=0.0)

    @property
    def summary(self) -> str:
        """Text with the verdict, the number of outputs and the largest error.

        A second line about ill-conditioned outputs is added if there are any.
        """
        text = f"{'equal' if self.ok else 'NOT EQUAL'}: {len(self.outputs)} outputs"
        wide = [o.wide.error for o in self.outputs if o.wide is not None]
        in_float32 = f", in float32 {max(wide):.2e}" if wide else ""
        ill_conditioned = [o.error for o in self.outputs if o.is_ill_conditioned]
        if not ill_conditioned:
            return f"{text}, largest error {self.worst:.2e}{in_float32}"
        rest = [o.error for o in self.outputs if not o.is_ill_conditioned]
        if rest:
            text += f", largest error {max(rest):.2e} among {len(rest)} of them"
        text += in_float32
        return (
            f"{text}\n{len(ill_conditioned)} are ill-conditioned, "
            f"largest error {max(ill_conditioned):.2e}; "
            "their tolerance is how far rounded inputs move them on one device"
        )

    def __str__(self) -> str:
        return "\n".join([*map(str, self.outputs), self.summary])

    def table(self, full: bool = False) -> Table:
        """A table with the largest error of each output.

        Outputs that differ only in the index of a layer share a row.
        full: give each output its own row.
        """
        has_wide = any(output.wide for output in self.outputs)
        more = (">in float32",) if has_wide else ()
        titles = ("output", "type", ">largest error", ">allowed", *more, "")
        rows: list[tuple[str, ...]] = []
        groups = group_by(
            self.outputs,
            lambda o: (o.path if full else index_free(o.path), o.shape, o.dtype, o.ok),
        )
        for group in groups.values():
            worst = max(group, key=lambda output: (not output.ok, output.error))
            count = f" (x{len(group)})" if len(group) > 1 else ""
            wide = "" if worst.wide is None else f"{worst.wide.error:.1e}"
            rows.append((
                merge([output.path for output in group]) + count,
                show_type(worst.shape, worst.dtype),
                f"{worst.error:.1e}",
                f"{worst.tolerance:.0e}",
                *((wide,) if has_wide else ()),
                "ok" if worst.ok else "WRONG",
            ))  # fmt: skip
        return Table(titles, tuple(rows))

    def _repr_html_(self) -> str:
        return notebook.block(self.summary, self.table().to_html())

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for `json.dumps`."""
        rows = [
            {**dataclasses.asdict(o), "wide": o.wide and o.wide.error, "ok": o.ok}
            for o in self.outputs
        ]
        return {"ok": self.ok, "worst": self.worst, "outputs": rows}


TOLERANCES = {
    "float64": 1e-9, "complex128": 1e-9, "float32": 2e-4, "complex64": 2e-4,
    "bfloat16": 3e-2, "float16": 3e-2,
}  # fmt: skip
"""Largest errors by dtype that a check accepts, relative to the scale of an output.
For 8-bit floats it is 0.3, for integers and bools 0. Sums in another order differ by some
units in the last place, and deep programs amplify the difference.
"""


def tolerance_of(dtype: str) -> float:
    """The largest relative error that another order of summation may cause.

    dtype: the dtype of the summed values.
    """
    return TOLERANCES.get(dtype, 0.3 if dtype.startswith("float") else 0.0)


MAX_BIAS = 2e-3
"""Largest bias at which an output is accepted; `OutputError` says what the bias is."""
