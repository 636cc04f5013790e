"""Engines start the workers of a gang: as Ray processes, or as threads of this process.

In: the number of workers and of devices. Out: a `Gang`, which takes instructions and
reports completions, and the `Connection` of a client to the controller.
"""
