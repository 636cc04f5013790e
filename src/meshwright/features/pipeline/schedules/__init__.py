"""Schedules of pipelined steps: which submesh runs which task of which stage, in order.

Input: numbers of stages and microbatches. Output: a `Schedule`, which is plain data; its
verdict (`verify`), its times on an event clock (`simulate`), and its peak memory. Begin
reading at `schedule.py`; `generators.py` has the schedules of the literature.
"""

from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    gpipe,
    interleaved,
    one_f_one_b,
    warmed_up,
    zero_bubble,
    zero_bubble_2,
)
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind
from meshwright.features.pipeline.schedules.simulate import (
    Simulation,
    StageBytes,
    StageTimes,
    TaskSpan,
    peak_bytes,
    simulate,
)
from meshwright.features.pipeline.schedules.verify import peak_activations, verify

__all__ = [
    "SCHEDULES",
    "Schedule",
    "Simulation",
    "StageBytes",
    "StageTimes",
    "Task",
    "TaskKind",
    "TaskSpan",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "peak_activations",
    "peak_bytes",
    "simulate",
    "verify",
    "warmed_up",
    "zero_bubble",
    "zero_bubble_2",
]
