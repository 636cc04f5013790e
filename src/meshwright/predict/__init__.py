"""Predictions: seconds, bytes, joules, money and carbon of a device program on a machine.

In: a device program and a machine. Out: an `Estimate`. Begin reading at `estimate.py`.
`compilers` turns a program into kernels as XLA does, `roofline` times one kernel, `links`
one collective, `memory` assigns buffers, and `simulate` schedules everything on a timeline.
"""
