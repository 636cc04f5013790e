"""The report: one HTML page about a simulated step of a plan, and trace events of it.

Begin reading at `page.py`, which lists the sections of the page, one file each.
`timeline.py` draws the spans of a device over time and, below them, the memory curve.
"""
