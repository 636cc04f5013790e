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
