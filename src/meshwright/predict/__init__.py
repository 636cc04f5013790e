"""Predicted seconds, bytes, joules, money and carbon of a device program on a machine.

A device program is the SPMD program that each device runs, with all collectives written
out. From it and a machine the package makes an `Estimate`. Begin reading at
`estimate.py`. The folders, in the order in which an estimate uses them:

    compilers  the program's fusions, kernels and layouts, as XLA makes them;
               `model/tiled_layouts.py` pads values to tiles
    roofline   seconds of one kernel
    links      seconds of one collective (`collective.py`)
    memory     buffer assignment with aliasing, packing, and the memory curve, which
               `app/report/timeline.py` draws
    simulate   the timeline of kernels and collectives
"""
