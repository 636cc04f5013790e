"""Alpa's found plans and figure 7, in our simulator.

    python -m benchmarks papers pipeline gpt 8

Zheng et al., OSDI 2022, section 8 and its benchmark suites: models that grow with the
number of GPUs, on the testbed of benchmarks/machines/alpa-v100.toml. Each cell compares
- ours: the planner's best plan;
- alpa: the plan that Alpa found, with its stages, logical meshes and microbatches, 1F1B,
  and for each stage the fastest of our strategies on that mesh;
- megatron: the best of equal stages with tensor and data parallelism, without ZeRO, 1F1B;
- inter only (one device a stage) and intra only (one stage), the paper's ablations.
All run on one event clock, with the same prices. Results: benchmarks/results/pipeline.json.
"""

import json
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.errors import MeshwrightError
from meshwright.features.pipeline.batch_sizes import ResizableStep
from meshwright.features.pipeline.planning.option_table import StageRoom
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_stage import run_stages, step_s
from meshwright.features.pipeline.planning.pipeline_task import (
    PipelineTask,
    microbatch_counts,
)
from meshwright.features.pipeline.planning.stage_costs import StageOption, stage_options
from meshwright.features.pipeline.planning.stage_slicing import (
    SlicedStage,
    slice_stages,
)
from meshwright.features.pipeline.schedules.generators import one_f_one_b
from meshwright.machine import load_machine
from meshwright.predict.roofline.work import program_work
from zoo import llm, moe, resnet
from zoo.decoder import Decoder, shapes, train_step

MACHINE = places.MACHINES / "alpa-v100.toml"

MODELS = {
    "gpt": {
        2: "alpa_760m", 4: "alpa_1_3b", 8: "alpa_2_6b", 16: "alpa_6_7b",
        32: "alpa_15b", 64: "alpa_39b",
    },
    "moe": {
        2: "moe_690m", 4: "moe_1_3b", 8: "moe_2_4b", 16: "moe_10b", 32: "moe_27b",
        64: "moe_70b",
    },
    "wrn": {
        2: "wrn_500m", 4: "wrn_1b", 8: "wrn_2b", 16: "wrn_4b", 32: "wrn_6_8b",
        64: "wrn_13b",
    },
}  # fmt: skip

type Shape = tuple[int, int, float]
"""Data and model size of a stage's logical mesh, and its share of the FLOPs.

A model size of 0 stands for a stage whose batch Alpa lets its solver cut as it likes.
"""

ALPA: dict[str, dict[int, tuple[tuple[Shape, ...], int]]] = {
    "gpt": {
        2: (((1, 1, 1),) * 2, 128),
        4: (((2, 1, 1),) * 2, 128),
        8: (((2, 1, 2), (2, 1, 2), (4, 1, 4)), 128),
        16: (((2, 4, 1),) * 2, 64),
        32: (((2, 4, 1),) * 4, 128),
        64: (((1, 4, 1),) * 16, 1024),
    },
    "moe": {
        2: (((2, 1, 1),), 32),
        4: (((2, 1, 1),) * 2, 32),
        8: (((4, 1, 1),) * 2, 32),
        16: (((8, 1, 1),) * 2, 16),
        32: (((4, 1, 1),) * 8, 128),
        64: (((8, 1, 1),) * 8, 64),
    },
    "wrn": {
        2: (((2, 0, 1),), 24),
        4: (((4, 0, 1),), 24),
        8: (((4, 0, 1),) * 2, 24),
        16: (((4, 1, 5), (4, 1, 4), (8, 0, 7)), 32),
        32: (((8, 1, 5), (8, 0, 4), (8, 0, 4), (8, 0, 3)), 32),
        64: (((8, 0, 4),) * 6 + ((8, 0, 5), (8, 0, 4)), 38),
    },
}
"""Stages and microbatches of the plans in Alpa's benchmark suites.

Alpa forces the second stage of WRN on 8 GPUs, and three of the eight on 64, to cut the
channels of convolutions instead of the batch. These stages, too, take the fastest of our
strategies, whether it cuts the batch or the channels. The logical shape of the first row
of GPT on 8 GPUs is not printed; data parallelism is assumed.
"""


def make_step(family: str, name: str) -> ResizableStep:
    """The train step of a model, with the optimizer of Alpa's suites.

    Every layer is recomputed. GPT has Adam; MoE has Adafactor (`optax_adafactor` in
    alpa/benchmark/alpa/benchmark_one_case_moe.py), whose state is factored: with Adam the
    state of 70B parameters, 16 bytes each, exceeds 64 x 16 GB.
    """
    if family == "gpt":
        model = Decoder(replace(llm.SIZES[name], remat="full"))
        return ResizableStep(train_step(model), tuple(shapes(model)))
    if family == "wrn":
        model = replace(resnet.SIZES[name], remat=True)
        return ResizableStep(*resnet.train_target(model))
    fn, args = moe.train_target(replace(moe.SIZES[name], optimizer="adafactor"))
    return ResizableStep(fn, tuple(args))


def shared_ends(planner: PipelinePlanner, shares: Sequence[float]) -> list[int]:
    """Where stages begin and end among the planner's layers, by shares of the FLOPs.

    The layers of Alpa and Megatron have equal FLOPs; the planner's may be single ops.
    """
    flops = np.array([block.flops for block in planner.step.blocks], float)
    layers = np.append(0, np.add.reduceat(flops, planner.starts).cumsum())
    goals = np.cumsum(shares) / sum(shares) * layers[-1]
    inner = [int(np.abs(layers - goal).argmin()) for goal in goals[:-1]]
    return [0, *inner, len(planner.starts)]


def fixed_plan(
    planner: PipelinePlanner,
    stages: Sequence[Shape],
    count: int,
    allow: Callable[[StageOption], bool] = lambda option: True,
    limit_bytes: float | None = None,
) -> float:
    """Seconds of a step of given stages with 1F1B and the fastest strategies allowed.

    Both the split of a mesh among strategies and its shape are given; a strategy that cuts
    the batch along both axes stands for a mesh of as many replicas. limit_bytes: of a
    device's memory; by default all that the machine has.
    """
    task = planner.task
    microbatch, rest = divmod(task.batch, count)
    if rest:
        raise MeshwrightError(f"{count} microbatches do not divide {task.batch}")
    limit = task.limit_bytes if limit_bytes is None else limit_bytes
    ends = shared_ends(planner, [share for _, _, share in stages])
    sizes = tuple(dict.fromkeys(data * max(model, 1) for data, model, _ in stages))
    options = stage_options(
        planner.priced, planner.starts, sizes, microbatch, task.machine
    )
    found = []
    for index, (data, model, _) in enumerate(stages):
        own = [o for o in options if allow(o) and _has_shape(o, data, model)]
        if not own:
            raise MeshwrightError(f"no strategy on {data}x{model}")
        room = StageRoom.of_1f1b(limit, len(stages), count)
        table = planner.table_of(own, count, room)
        found.append((SlicedStage(ends[index], ends[index + 1], 0), table))
    made = planner.place([each for each, _ in found], [t for _, t in found])
    schedule = one_f_one_b(len(made), count)
    return step_s(made, run_stages(made, schedule, limit))


def _has_shape(option: StageOption, data: int, model: int) -> bool:
    if option.size != data * max(model, 1):
        return False
    replicas = option.priced.strategy.batch_parts(option.data)
    return model == 0 or replicas == data or (model == 1 and replicas == option.size)


def best_of(tries: Sequence[Callable[[], float]]) -> float | str:
    """The least seconds, or why none could be had: the reason of the first try."""
    found: list[float] = []
    why: list[str] = []
    for each in tries:
        try:
            found.append(each())
        except MeshwrightError as error:
            why.append(str(error))
    return min(found) if found else [*why, "nothing tried"][0]


def alpas(planner: PipelinePlanner, num: int, family: str) -> tuple[float | str, bool]:
    """Seconds of Alpa's plan, and whether it fits into memory by our model.

    Alpa's plans have run on the testbed. One that does not fit by our model is timed
    without a limit.
    """
    stages, count = ALPA[family][num]
    found = best_of([lambda: fixed_plan(planner, stages, count)])
    if isinstance(found, float):
        return found, True
    endless = float("inf")
    tries = [lambda: fixed_plan(planner, stages, count, limit_bytes=endless)]
    return best_of(tries), False


def megatron(planner: PipelinePlanner, num: int) -> float | str:
    """The best of equal stages with tensor and data parallelism."""

    def allow(option: StageOption) -> bool:
        names = {"data", "Megatron", "Megatron + data", "one device"}
        names |= {"expert", "expert + data", "expert + data on both + data"}
        return option.priced.strategy.name in names

    tries = []
    pipeline = 1
    while pipeline <= num:
        model = 1
        while model * pipeline <= num and model <= 8:
            data = num // (model * pipeline)
            for count in microbatch_counts(planner.task.batch):
                stages = ((data, model, 1.0),) * pipeline
                tries.append(lambda s=stages, c=count: fixed_plan(planner, s, c, allow))
            model *= 2
        pipeline *= 2
    return best_of(tries)


def only(planner: PipelinePlanner, sizes: tuple[int, ...], most: int) -> float | str:
    """The best pipeline with submeshes of these sizes and at most so many stages."""
    task = replace(planner.task, most_stages=most)
    limited = copy(planner)
    limited.task, limited.sizes = task, sizes

    def plan(count: int) -> float:
        table = limited.table(count)
        sliced = slice_stages(table.table, task.machine.num_devices, count)
        stages = limited.place(sliced, [table] * len(sliced), count)
        schedule = one_f_one_b(len(stages), count)
        return step_s(stages, run_stages(stages, schedule, task.limit_bytes))

    counts = microbatch_counts(task.batch)
    return best_of([lambda c=count: plan(c) for count in counts])


def cell(family: str, num: int) -> dict[str, Any]:
    """All figures of one model on one number of GPUs."""
    name = MODELS[family][num]
    step = make_step(family, name)
    machine = load_machine(MACHINE, num)
    began, cpu = time.monotonic(), time.process_time()
    task = PipelineTask(
        name, step.capture, step.batch, machine, machine.chip.usable_bytes
    )
    planner = PipelinePlanner(task)
    plan = planner.best()
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    ours = plan.step_time_s
    alpa, alpa_fits = alpas(planner, num, family)
    flops = program_work(step.captured.program).flops
    rows: dict[str, float | str] = {
        "ours": ours,
        "alpa": alpa,
        "megatron": megatron(planner, num),
        "inter only": only(planner, (1,), num),
        "intra only": only(planner, (num,), 1),
    }
    return {
        "model": name,
        "gpus": num,
        "step_s": rows,
        "alpa_fits": alpa_fits,
        "pflops": {
            k: flops / v / 1e15 for k, v in rows.items() if isinstance(v, float)
        },
        "plan": str(plan).splitlines(),
        "tried": dict(plan.tried),
        "planning_s": seconds,
        "planning_cpu_s": cpu_s,
    }


@benchmark(
    option("family", choices=[*MODELS]),
    option("gpus", nargs="*", type=int),
    out=STORED,
)
def main(options: Options) -> None:
    """Compute the cells named in the arguments, and add them to the results."""
    for num in options.gpus:
        found = cell(options.family, num)
        known = options.stored({})
        known.setdefault(options.family, {})[str(num)] = found
        options.save(known)
        print(options.family, num, json.dumps(found["step_s"]), flush=True)


if __name__ == "__main__":
    main()
