"""A compiler that says what it is told to: in place of the real ones, which are large.

`install` puts it there. It runs as `python -m tests.fake_compiler REQUEST`, as a child
of the code under test, and does what the environment names.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

HLO = """HloModule step, is_scheduled=true

ENTRY %main.3 (a: f32[64,8]) -> f32[64,8] {
  %a = f32[64,8] parameter(0)
  %sum-start = ((f32[64,8]), f32[64,8]) all-reduce-start(%a), to_apply=%add
  %sum = f32[64,8] all-reduce-done(%sum-start)
  ROOT %f = f32[64,8] fusion(%sum), backend_config={"x":{"estimated_cycles":"3000"}}
}
"""

MEMORY = {
    "argument_bytes": 5000,
    "output_bytes": 4000,
    "alias_bytes": 3000,
    "temp_bytes": 1000,
    "peak_bytes": 6500,
    "flops": 1e6,
    "compile_s": 1.5,
}
"""What it tells where it may finish; else 7,000 bytes."""


def install(monkeypatch, does="compiles"):
    """Let every compiler be installed, and be this one."""
    from meshwright.run.compilers.confirm import (
        BACKENDS,  # too slow to import for the child
    )

    real = importlib.util.find_spec
    extras = {each for backend in BACKENDS.values() for each in backend.modules}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name in extras or real(name)
    )
    monkeypatch.setattr(
        "meshwright.run.compilers.confirm.export_step", lambda *_: b"step"
    )
    monkeypatch.setattr(
        "meshwright.run.compilers.confirm._CHILD", "tests.fake_compiler"
    )
    monkeypatch.setenv("FAKE_COMPILER", does)
    for backend in ("tpu", "gpu"):  # which would not parse a program so short
        monkeypatch.setattr(f"meshwright.run.compilers.{backend}.hlo_flops", len)


def compile_step(request, does):
    """Write what a compiler would, and wait to be ended if it is `slow`."""
    if does == "fails":
        sys.exit("Traceback:\n  some line\njaxlib.SomeError: no such topology\n\nbye")
    if does == "refuses":
        sys.exit("RESOURCE_EXHAUSTED: Used 20.50G of 15.75G hbm. Exceeded by 4.75G.")
    dump = Path(request["result"]).parent / "dump"
    hlo = HLO
    if does.startswith("calls "):
        target = f'custom_call_target="__{does.removeprefix("calls ").lower()}$x"'
        hlo = HLO.replace("fusion(%sum)", f"custom-call(%sum), {target}")
    if does == "calls cuDNN":
        (dump / "after_spmd_partitioner.txt").write_text("11 letters.")
    for stem in (
        "tpu.after_optimizations_after_buffer_assignment",
        "gpu_after_optimizations",
    ):
        (dump / f"{stem}.txt").write_text(hlo)
    for stem, total in (
        ("tpu.after_optimizations", "7512 (7.34KiB)"),
        ("gpu_after_optimizations", "7000"),
    ):
        (dump / f"{stem}-memory-usage-report.txt").write_text(
            f"Memory Space: default (color=0)\nTotal bytes: {total}\n"
        )
    # Of the TPU's total, 512 bytes are arguments of a called computation.
    (dump / "tpu.after_optimizations-buffer-assignment.txt").write_text(
        "allocation 0: size 7000, maybe-live-out:\n"
        "allocation 1: size 64, color 8, page 0, thread-local:\n"
        "allocation 2: size 512, page 0, thread-local:\n"
    )
    if does == "slow":
        time.sleep(600)
    Path(request["hlo"]).write_text(hlo)
    Path(request["result"]).write_text(json.dumps(MEMORY))


if __name__ == "__main__":
    compile_step(json.loads(Path(sys.argv[1]).read_text()), os.environ["FAKE_COMPILER"])
