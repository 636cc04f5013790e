"""The plan of a built pipeline: its record, its simulation on a machine, and its views.

Begin reading at `pipeline_plan.py`. `simulate_plan.py` simulates it: `task_estimates.py`
each task of each stage alone, and `pipeline_figures.py` puts their times and bytes
together. The other files have one view each, which a method of `PipelinePlan` imports when
it is called: text, HTML sections, trace events, JSON, code, and a comparison with the real
compiler.
"""
