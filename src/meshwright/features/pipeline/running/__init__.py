"""Execution of pipelines: stages on submeshes of this process, or on slices of a cluster.

In: the tasks of each stage and a schedule. Out: the outputs of the step. Begin reading at
`runtime.py`; `stage.py` holds the values of one stage, `task_function.py` is one task,
and `slice_devices.py` runs tasks on the workers of a cluster.
"""
