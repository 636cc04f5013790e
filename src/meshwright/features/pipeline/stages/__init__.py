"""Pipeline stages: a captured training step, divided into device programs per stage.

Input: a captured step, a number of microbatches, and cuts, which are the positions
where stages begin. Output: for each stage, programs of its forward pass, its backward
pass and its update (`tasks.py`). In this order:

microbatches  what runs for each microbatch, and what once
cuts          where stages begin: at the user's marks, or where FLOPs are divided evenly
passes        the pass of each op; updates: the stage of each op after the last
              microbatch
staged        the step of one microbatch as an ordinary program, which tactics partition
lowered_step  the stage and pass of each op of that program, once it is lowered
tasks         the device programs of each stage; verify: a checker of them
"""

from meshwright.features.pipeline.stages.cuts import (
    MARK,
    Cuts,
    cuts_at,
    even_cuts,
    forward_program,
    has_marks,
    marked_cuts,
    planned_cuts,
)
from meshwright.features.pipeline.stages.lowered_step import LoweredStep, read_lowered
from meshwright.features.pipeline.stages.marks import (
    StagePoint,
    marks_between,
    names_of,
    with_marks,
)
from meshwright.features.pipeline.stages.microbatches import (
    MICROBATCH,
    Microbatches,
    find_microbatches,
    flops_of,
)
from meshwright.features.pipeline.stages.staged import Staged, stage_step
from meshwright.features.pipeline.stages.tasks import (
    StageTasks,
    TaskProgram,
    stage_tasks,
)

__all__ = [
    "MARK",
    "MICROBATCH",
    "Cuts",
    "LoweredStep",
    "Microbatches",
    "StagePoint",
    "StageTasks",
    "Staged",
    "TaskProgram",
    "cuts_at",
    "even_cuts",
    "find_microbatches",
    "flops_of",
    "forward_program",
    "has_marks",
    "marked_cuts",
    "marks_between",
    "names_of",
    "planned_cuts",
    "read_lowered",
    "stage_step",
    "stage_tasks",
    "with_marks",
]
