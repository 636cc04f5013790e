"""Where workers come from: processes that Ray starts, or this process itself.

In: the number of workers and of their devices. Out: a `Gang`, which takes instructions
and tells completions, and the `Connection` of a client to the controller.
"""
