"""Commands of solvers: buffers of a CSV, chips for a program, problems of a contest.

In: the arguments of one command. Out: the answer on standard output, and files. Each
module is named after its command. The work is done in `search` and `planner/chips`.
"""
