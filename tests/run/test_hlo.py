"""Collectives, trip counts and estimates parsed from the text of compiled programs."""

import pytest

from meshwright.run.compilers.hlo import (
    estimated_cycles,
    hlo_collectives,
    scheduler_report,
)

PROGRAM = """HloModule jit_step, is_scheduled=true

%all-reduce-scatter (input: f32[64,8]) -> f32[16,8] {
  %p = f32[64,8]{1,0:T(8,128)} parameter(0)
  %sum = f32[64,8]{1,0:T(8,128)} all-reduce(%p), channel_id=2, to_apply=%add
  ROOT %slice = f32[16,8]{1,0} dynamic-slice(%sum)
}

%body (b: f32[8]) -> f32[8] {
  %b = bf16[8,16]{1,0:T(8,128)(2,1)} parameter(0)
  %gather-start = (bf16[8,16]{1,0}, bf16[32,16]{1,0}) all-gather-start(%b), channel_id=1
  %gather-done = bf16[32,16]{1,0} all-gather-done(%gather-start)
  %f = f32[8] fusion(%b), backend_config={"window_config":{"estimated_cycles":"100"}}
}

ENTRY %main.3 (a: f32[8]) -> f32[8] {
  %a = f32[64,8] parameter(0)
  %c = s32[2] parameter(1)
  %scatter = f32[16,8] fusion(%a), kind=kCustom, calls=%all-reduce-scatter
  %both = (f32[64,8], s32[2]) all-reduce(%a, %c), to_apply=%add
  %small = f32[16,8] reduce-scatter(%a), dimensions={0}
  %g = f32[8] fusion(%a), backend_config={"window_config":{"estimated_cycles":"7"}}
  %w = f32[8] while(%g), body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""


def test_cycles_of_a_loop_are_multiplied():
    assert estimated_cycles(PROGRAM) == 7 + 5 * 100


def test_a_loop_without_a_trip_count_runs_up_to_the_constant_of_its_condition():
    condition = """%until (c: s32[]) -> pred[] {
  %c = s32[]{:T(128)} parameter(0)
  %end = s32[]{:T(128)} constant(12)
  ROOT %less = pred[] compare(%c, %end), direction=LT
}

ENTRY"""
    counted = ', backend_config={"known_trip_count":{"n":"5"}}'
    text = PROGRAM.replace("ENTRY", condition)
    text = text.replace("body=%body" + counted, "condition=%until, body=%body")
    assert estimated_cycles(text) == 7 + 12 * 100


def test_collectives_have_the_bytes_of_their_larger_side():
    found = {
        t.name: t
        for t in hlo_collectives(PROGRAM, PROGRAM, {"gather-start": 3000.0}, 1.5e9)
    }
    gather, scatter = found["gather-start"], found["sum"]
    assert (gather.kind, gather.num_bytes, gather.runs) == ("all_gather", 1024, 5)
    assert gather.seconds == pytest.approx(2e-6)
    assert (scatter.kind, scatter.num_bytes) == ("reduce_scatter", 2048)
    assert (found["both"].kind, found["both"].num_bytes) == ("all_reduce", 2056)
    assert found["small"].num_bytes == 2048
    assert found["small"].seconds is None
    assert len(found) == 4


def test_collectives_of_loop_results_have_the_bytes_of_one_tuple_element():
    loop = "%pair = (f32[8], /*index=1*/f32[128,8]{1,0:T(8,128)S(1)}) while(%g), body=%body"
    text = PROGRAM.replace("reduce-scatter(%a)", "reduce-scatter(%pair#1)")
    text = text.replace("  %small", f"  {loop}\n  %small")
    found = {t.name: t.num_bytes for t in hlo_collectives(text, text, {}, 1.5e9)}
    assert found["small"] == 4 * 128 * 8


def test_operands_after_a_comment_are_counted():
    text = PROGRAM.replace("reduce-scatter(%a)", "reduce-scatter(%a, /*index=5*/%a)")
    found = {t.name: t for t in hlo_collectives(text, text, {}, 1.0)}
    assert found["small"].num_bytes == 2 * 2048


def test_the_schedulers_log_gives_the_program_and_its_costs():
    head = "I1121 08:06:17.632652    1983 latency_hiding_scheduler.cc:4445] "
    lines = [
        *PROGRAM.splitlines(),
        "Total wasted cycles: 12",
        "Instr: %gather-start = all-gather-start(%b)",
        "Cost: 1",
        "Instr: %gather-done = all-gather-done(%gather-start)",
        "\tEdge: gather-start latency: 3000",
        "Instr: %both = all-reduce(%a, %c)",
        "Cost: 450.5",
    ]
    log = "noise\n" + "\n".join(head + line for line in lines)
    program, cycles = scheduler_report(log)
    assert estimated_cycles(program) == estimated_cycles(PROGRAM)
    assert cycles["gather-start"] == 3000
    assert cycles["both"] == 450.5


def test_an_unknown_log_format_gives_nothing():
    assert scheduler_report("some\nother log") == ("", {})
    assert hlo_collectives("", "", {}, 1.0) == []
