"""The list of the zoo's programs: parameters, FLOPs of a step, memory on one device.

In: the package `zoo` of a checkout. Out: a table, or JSON. Begin reading at `command.py`,
which is `meshwright zoo`.
"""
