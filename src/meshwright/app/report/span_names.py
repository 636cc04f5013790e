"""Names of spans for the report and the trace: the op, and what overlap made of it."""

from dataclasses import dataclass, field

from meshwright.app.record.plan_record import PlanRecord, estimate_of, program_of
from meshwright.partitioner.lower import Origin, executions
from meshwright.predict.simulate.timeline import Span
from meshwright.program.ir import Op


@dataclass(frozen=True, slots=True)
class SpanNames:
    """Names of the spans of a plan's simulated step, and reasons for its collectives.

    reasons: the reason for each collective op of the device program.
    """

    plan: PlanRecord
    reasons: dict[Op, str] = field(init=False)

    def __post_init__(self) -> None:
        ops = [op for op, _ in executions(program_of(self.plan).lowered.program)]
        pairs = zip(ops, self.plan.collectives, strict=True)
        object.__setattr__(self, "reasons", {op: row.reason for op, row in pairs})

    def name(self, span: Span) -> str:
        """The op kind at the root of a span's fusion, such as `scan x 12`.

        The number is the loop's iterations, and is left out for other ops. A combined
        collective is `all_reduce of 4 values`, a gather for the next iteration `all_gather
        ahead`.
        """
        kind = span.fusion.root.kind
        origin = self._origin(span)
        if origin is not None and origin.is_ahead:
            kind += " ahead"
        if origin is not None and origin.num_values > 1:
            kind += f" of {origin.num_values} values"
        return kind if span.repeats == 1 else f"{kind} x {span.repeats}"

    def reason(self, span: Span) -> str:
        """The reason for a collective; "" for a kernel."""
        return self.reasons.get(self._op(span), "")

    def _origin(self, span: Span) -> Origin | None:
        return program_of(self.plan).lowered.origins.get(self._op(span))

    def _op(self, span: Span) -> Op:
        root = span.fusion.root
        return estimate_of(self.plan).origins.get(root, root)
