"""Execution of pipelines: stages on submeshes of this process, or on slices of a cluster.

In: the tasks of each stage and a schedule. Out: the outputs of the step. Begin reading at
`runtime.py`; `stage.py` holds the values of one stage, `task_function.py` is one task,
and `slice_devices.py` runs tasks on the workers of a cluster.
"""

from meshwright.features.pipeline.running.primitives import as_primitives
from meshwright.features.pipeline.running.runtime import PipelineExecutable
from meshwright.features.pipeline.running.stage import (
    ProcessDevices,
    StageDevices,
    StageProgram,
)
from meshwright.features.pipeline.running.task_function import TaskLayout

__all__ = [
    "PipelineExecutable",
    "ProcessDevices",
    "StageDevices",
    "StageProgram",
    "TaskLayout",
    "as_primitives",
]
