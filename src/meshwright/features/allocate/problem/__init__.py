"""The allocation problem: buffers, their files, their arrays, and the check of a packing.

In: a CSV (`table.py`) or records (`buffer.py`). Out: arrays for compiled searches
(`sections.py`), and what is wrong with offsets (`check.py`). Begin reading at `buffer.py`.
"""
