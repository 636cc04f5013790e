"""Engines start the workers of a gang: Ray as processes, or this process as threads.

In: the number of workers and of their devices. Out: a `Gang`, which takes instructions
and tells completions, and the `Connection` of a client to the controller.
"""
