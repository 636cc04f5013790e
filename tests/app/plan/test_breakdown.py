"""The breakdown of a step, against a comparison of each collective with each span."""

import pytest

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.predict.compilers.model.fusion import FusionKind
from meshwright.predict.estimate import estimate
from meshwright.predict.simulate.timeline import COMPUTE
from zoo import gpt


def hidden_s(span, computing):
    """Seconds of a span that overlap with computation."""
    return sum(
        max(0.0, min(other.end_s, span.end_s) - max(other.start_s, span.start_s))
        for other in computing
    )


@pytest.mark.parametrize("machine", ["tpu-v3", "h100"])
@pytest.mark.parametrize("schedule", ["bp", "bp+mp+z3", "mp"])
def test_hidden_and_exposed_seconds_equal_a_comparison_of_all_pairs_of_spans(
    schedule, machine
):
    fn, args = gpt.tiny()
    step = mw.partition(fn, {"batch": 4, "model": 2}, gpt.schedules[schedule])
    found = estimate(step.decide(*args), load_machine(machine, 8))
    computing = [s for s in found.timeline.spans if s.stream == COMPUTE]
    wanted = {}
    for span in found.timeline.spans:
        if span.fusion.kind is FusionKind.COLLECTIVE:
            name = f"{span.fusion.root.kind} hidden"
            wanted[name] = wanted.get(name, 0.0) + hidden_s(span, computing)
    assert wanted
    hidden = {k: s for k, s in found.breakdown.items() if k.endswith("hidden")}
    assert hidden == pytest.approx(wanted)
