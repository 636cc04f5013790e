"""Commands for problems that are given as files or programs: buffers, chips, contest files.

In: the arguments of one command. Out: the answer on standard output, and files. Each
module has the command of its name; `search` and `planner/chips` solve.
"""
