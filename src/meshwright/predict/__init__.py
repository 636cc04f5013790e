"""Predictions: seconds, bytes, joules, money and carbon of a device program on a machine.

In: a device program and a machine. Out: an `Estimate`. Begin reading at `estimate.py`;
`roofline` and `links` price one kernel and one collective, `compilers` tells what XLA
makes of a program, `memory` where its buffers lie, `simulate` when everything runs.
"""
