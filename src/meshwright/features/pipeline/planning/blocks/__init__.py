"""A train step as a sequence of blocks, which are grouped into layers.

Input: a captured train step. Output: its blocks, with the block and phase of each op
(`step_blocks.py`), the blocks at which layers begin (`clustering.py`), and those to
which an update's memory belongs (`update_bytes.py`). Begin reading at `step_blocks.py`.
"""
