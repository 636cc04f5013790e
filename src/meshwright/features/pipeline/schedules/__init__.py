"""Schedules of pipelined steps: which submesh runs which task of which stage, in order.

Input: numbers of stages and microbatches. Output: a `Schedule`, which is plain data; its
verdict (`verify`), its times on an event clock (`simulate`), and its peak memory. Begin
reading at `schedule.py`; `generators.py` has the schedules of the literature.
"""

from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    one_f_one_b,
    zero_bubble,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.simulate import StageTimes, simulate

__all__ = [
    "SCHEDULES",
    "Schedule",
    "StageTimes",
    "one_f_one_b",
    "simulate",
    "zero_bubble",
]
