"""Pipeline planning: stages of a train step on submeshes, with a schedule.

Input: a train step that can be captured at any size of its batch, and a machine
(`PipelineTask`). Output: a `PipelinePlan`. Begin reading at `pipeline_planner.py`. The
method is Alpa's (Zheng et al., OSDI 2022): `blocks` divides the step into layers,
`strategy_prices.py` and `stage_costs.py` predict their time and memory, `stage_slicing.py`
cuts the layers into stages.
"""
