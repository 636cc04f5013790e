"""Trace events: the rules of their format, and their content."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.report.trace_events import lay_out, memory_over_time
from meshwright.errors import PlanError
from zoo import gpt

MESH = {"batch": 4, "model": 2}
ITERATIONS = 24


@pytest.fixture(scope="module")
def plan():
    schedule = gpt.schedules["bp+mp+z3"]
    step = mw.partition(gpt.train_step, MESH, schedule, donate_argnums=0)
    return step.plan(*gpt.shapes(replace(gpt.T32, layers=2)))


@pytest.fixture(scope="module")
def placed(plan):
    return plan.on(mw.machine("tpu-v4", chips=8), "iowa")


@pytest.fixture(scope="module")
def looped():
    def f(x, weights):
        def layer(carry, weight):
            return jnp.tanh(carry @ weight), None

        return jax.lax.scan(layer, x, weights)[0].sum()

    shapes = (jnp.zeros((512, 1024)), jnp.zeros((ITERATIONS, 1024, 1024)))
    tactics = [mw.shard({"weights": 1}, axis="model")]
    plan = mw.partition(f, MESH, tactics).plan(*shapes)
    return plan.on(mw.machine("tpu-v5p", chips=8))


def written(path, plan, *others):
    plan.trace(path, others)
    return json.loads(path.read_text())["traceEvents"]


def faults(events):
    """One sentence for each event that breaks the rules of the format."""
    for event in events:
        missing = {"ph", "ts", "pid", "tid", "name"} - event.keys()
        if missing:
            yield f"{event} lacks {missing}"
        if event["ph"] == "X" and not event["dur"] >= 0:
            yield f"{event} ends before it begins"
    spans = [e for e in events if e["ph"] == "X"]
    for pid, tid in {(e["pid"], e["tid"]) for e in spans}:
        yield from overlaps([e for e in spans if (e["pid"], e["tid"]) == (pid, tid)])
    names = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    for event in spans:
        for wanted in (
            ("process_name", event["pid"], 0),
            ("thread_name", event["pid"], event["tid"]),
        ):
            if wanted not in names:
                yield f"nothing names {wanted}"


def overlaps(spans):
    """One sentence for each two spans of a thread that overlap without nesting."""
    times = sorted(
        ((round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"]))) for e in spans),
        key=lambda t: (t[0], -t[1]),
    )
    open_until = []
    for start, end in times:
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if open_until and end > open_until[-1]:
            yield f"{start} to {end} crosses the end of a span at {open_until[-1]}"
        open_until.append(end)


@pytest.mark.parametrize("name", ["placed", "looped"])
def test_the_events_are_valid_in_the_format(name, request, tmp_path):
    events = written(tmp_path / "trace.json", request.getfixturevalue(name))
    assert list(faults(events)) == []


def test_the_check_of_the_format_finds_invalid_events(placed, tmp_path):
    events = written(tmp_path / "trace.json", placed)
    span = next(e for e in events if e["ph"] == "X" and e["dur"] > 1)
    crossing = span | {"ts": span["ts"] + span["dur"] / 2}
    assert any("crosses" in f for f in faults([*events, crossing]))
    assert any("before it begins" in f for f in faults([*events, span | {"dur": -1}]))
    assert any("nothing names" in f for f in faults([*events, span | {"pid": 7}]))
    nameless = {k: v for k, v in span.items() if k != "name"}
    assert any("lacks {'name'}" in f for f in faults([nameless]))


def test_each_fusion_is_a_span_with_its_line_bound_and_bytes(placed, tmp_path):
    spans = [e for e in written(tmp_path / "t.json", placed) if e["ph"] == "X"]
    assert len(spans) == len(placed.estimate.timeline.spans)
    assert all(e["args"]["kind"] == e["cat"] for e in spans)
    assert {e["args"]["bound"] for e in spans} >= {"links", "matrix", "memory"}
    sources = {e["args"]["source"] for e in spans}
    assert {c.source for c in placed.collectives} <= sources
    largest = max(c.bytes for c in placed.collectives)
    assert largest in {e["args"]["bytes"] for e in spans if e["tid"] == 2}
    end = max(e["ts"] + e["dur"] for e in spans)
    assert end == pytest.approx(1e6 * placed.step_time_s)


def test_a_loop_is_a_span_around_one_iteration_of_its_body(looped, tmp_path):
    spans = [e for e in written(tmp_path / "t.json", looped) if e["ph"] == "X"]
    (loop,) = [e for e in spans if e["name"] == f"scan x {ITERATIONS}"]
    inside = [
        e
        for e in spans
        if e is not loop and loop["ts"] <= e["ts"] < loop["ts"] + loop["dur"]
    ]
    assert any(e["args"]["kind"] == "product" for e in inside)
    assert any(e["args"]["kind"] == "collective" for e in inside)
    iteration_end = loop["ts"] + loop["dur"] / ITERATIONS
    assert all(e["ts"] + e["dur"] <= iteration_end + 0.002 for e in inside)


def test_all_iterations_together_fill_the_loop(looped):
    runs = list(lay_out(looped.estimate.timeline, most=ITERATIONS))
    (loop,) = [r for r in runs if r.span.inner is not None]
    one = len(loop.span.inner.spans)
    inside = [r for r in runs if r is not loop and r.start_s >= loop.start_s]
    inside = [r for r in inside if r.end_s <= loop.end_s * (1 + 1e-9)]
    assert len(inside) == ITERATIONS * one
    assert max(r.end_s for r in inside) == pytest.approx(loop.end_s)


def test_the_memory_counter_reaches_the_peak_and_its_times_increase(placed, tmp_path):
    counts = [e for e in written(tmp_path / "t.json", placed) if e["ph"] == "C"]
    alive = [e["args"]["bytes"] for e in counts]
    assert max(alive) == max(placed.estimate.memory.curve)
    assert alive[0] >= placed.estimate.memory.curve[0]
    times = [e["ts"] for e in counts]
    assert times == sorted(times)
    starts = [start for start, *_ in memory_over_time(placed.estimate)]
    assert len(set(starts)) == len(starts)


def test_each_plan_is_a_process(plan, placed, tmp_path):
    other = plan.on(mw.machine("h100", chips=8))
    events = written(tmp_path / "trace.json", placed, other)
    assert list(faults(events)) == []
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == [
        "tpu-v4 x 8, mesh batch=4,model=2",
        "h100 x 8, mesh batch=4,model=2",
    ]


def test_a_plan_without_a_machine_says_how_to_name_one(plan, placed, tmp_path):
    with pytest.raises(PlanError, match=r"plan\.on\("):
        plan.trace(tmp_path / "trace.json")
    with pytest.raises(PlanError, match=r"plan\.on\("):
        placed.trace(tmp_path / "trace.json", others=[plan])


def test_a_plan_from_json_has_no_timeline(placed, tmp_path):
    read = mw.Plan.from_json(placed.to_json())
    with pytest.raises(PlanError, match="no timeline; make the plan again"):
        read.trace(tmp_path / "trace.json")
