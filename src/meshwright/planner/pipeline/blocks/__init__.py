"""A train step as a sequence of blocks, which are grouped into layers.

Input: a captured train step. Output: its blocks, with the block and phase of each op
(`step_blocks.py`), and the blocks at which layers begin (`clustering.py`). Begin
reading at `step_blocks.py`.
"""
