"""The report: one HTML page about a plan on a machine, and its trace events.

Begin reading at `page.py`, which lists the sections, one file each. `timeline.py` draws
the streams of a device and, below them, the memory curve.
"""
