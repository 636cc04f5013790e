"""The public interface: partitioned functions, plans, reports, checks, and `autoplan`.

Its functions take a JAX function, its arguments, and tactics or a machine. They return a
`Plan`, and a function that runs the plan. A tactic is one decision about the sharding,
such as `data_parallel("data")`. Begin reading at `partition.py`, then `plan.py`. This
file imports nothing, since the search imports SciPy and numba. The folders:

step     tracing, planning and compiling a function for one signature of arguments
record   the data of a plan, which the other folders read
explain  text about the effect of each tactic and the reason for each collective
report   an HTML page and trace events about a simulated step
confirm  predicted figures compared with those of the real compiler
check    outputs of the partitioned program compared with those of the original
interop  plans for plain `jax.jit`, Flax and MaxText
output   numbers with units, files and progress
"""
