"""The public interface: partitioned functions, plans, reports, checks, and `autoplan`.

In: a JAX function, arguments, and tactics or a machine. Out: a `Plan`, and a function
that runs it. Begin reading at `partition.py`, then `plan.py`. Nothing is imported here,
since the search imports SciPy and numba. The folders:

step     what is traced, planned and compiled for one signature of arguments
pipeline  steps in stages on submeshes, their plans and simulated times
record   the data of a plan, which the other folders read
explain  the effect of each tactic, and the reason for each collective
report   an HTML page and trace events about a simulated step
confirm  predicted figures compared with those of the real compiler
check    outputs of the partitioned program compared with those of the original
replicate  a step written for one replica, run by many
train    training by a recipe: data, loop, metrics, resumption
interop  plans for plain `jax.jit`, Flax and MaxText
output   numbers with units, files and progress
"""
