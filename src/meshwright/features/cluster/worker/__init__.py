"""Workers, which execute the controller's instructions on the devices of their process.

In: instructions, in one order for all workers. Out: completions, and parts of arrays.
`worker` holds the arrays and programs, `transfer` sends parts to other workers.
"""
