"""Pipeline planning: stages of a train step on submeshes, with a schedule.

Input: a train step that can be captured at any size of its batch, and a machine
(`PipelineTask`). Output: a `PipelinePlan`. Begin reading at `planning.py`. After Alpa
(Zheng et al., OSDI 2022): `step_blocks.py` and `clustering.py` find layers,
`strategy_prices.py` and `stage_costs.py` price them, `slicing.py` cuts stages.
"""
