"""CPU seconds of one case in the checkout that it runs in, for `versions.py`, as JSON.

    python benchmarks/partitioning/version_case.py "plan gpt:t32"

It imports nothing of `benchmarks`, which the other checkout may lack.
"""

import importlib
import json
import sys
import time

import meshwright as mw

CASES = {
    "gpt:t32": ("bp+mp+z3", {"batch": 8, "model": 4}, "tpu-v3"),
    "gpt3:t24": ("bp+mp", {"batch": 8, "model": 4}, "tpu-v5e"),
    "llm:gpt_350m": ("fsdp", {"data": 8}, "h100"),
    "moe:moe_2_4b": ("dp", {"data": 8}, "tpu-v5p"),
    "resnet:resnet_50": ("dp", {"data": 8}, "tpu-v5e"),
    "unet:ho_cifar10": ("fsdp", {"data": 8}, "tpu-v4"),
    "t5:small": ("dp+mp+z3", {"data": 4, "model": 2}, "tpu-v5e"),
}
"""Schedule, mesh and machine of each program."""

SEARCHES = {"gpt:tiny": 8, "resnet:tiny": 8, "moe:tiny": 8, "gpt3:t24": 16}
"""Number of TPU v5e chips for which a plan of a program is searched."""


def measure_once(case: str) -> None:
    """Print the CPU seconds of one case as JSON, by stage."""
    warm_up()
    kind, _, name = case.partition(" ")
    print(json.dumps(planned(name) if kind == "plan" else searched(name)))


def warm_up() -> None:
    """Plan and simulate a small program."""
    from zoo.gpt import workload

    fn, args = workload.tiny()
    name = next(iter(workload.schedules))
    plan = mw.partition(fn, workload.mesh, workload.schedules[name]).plan(*args)
    _ = plan.on("tpu-v5e").step_time_s


def planned(name: str) -> dict[str, float]:
    """Seconds to capture and partition a program, and to simulate its plan."""
    fn, args, workload = program(name)
    schedule, mesh, machine = CASES[name]
    tactics = workload.schedules[schedule]
    begin = time.process_time()
    plan = mw.partition(fn, mesh, tactics).plan(*args)
    middle = time.process_time()
    step_time_s = plan.on(machine).step_time_s
    end = time.process_time()
    return {
        "partition_s": middle - begin,
        "simulate_s": end - middle,
        "step_time_s": step_time_s,
    }


def searched(name: str) -> dict[str, float]:
    """Seconds of a search, and the step time of the plan that it finds."""
    fn, args, _ = program(name)
    machine = mw.machine("tpu-v5e", chips=SEARCHES[name])
    begin, begin_wall = time.process_time(), time.perf_counter()
    plan = mw.autoplan(fn, args, machine=machine)
    return {
        "search_s": time.process_time() - begin,
        "search_wall_s": time.perf_counter() - begin_wall,
        "step_time_s": plan.step_time_s,
    }


def program(name: str) -> tuple[object, tuple[object, ...], object]:
    """Function, arguments and workload of a program of the zoo."""
    module, _, size = name.partition(":")
    workload = importlib.import_module(f"zoo.{module}").workload
    forms = {f.__name__: f for f in (workload.tiny, *workload.full)}
    return *(forms.get(size) or workload.tiny)(), workload


if __name__ == "__main__":
    measure_once(sys.argv[1])
