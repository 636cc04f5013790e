"""XLA's TPU compiler (libtpu): its list of passes, and the passes that only it has.

Begin reading at `tpu_passes.py`, the list. Each other file holds one pass, or a part of it.
"""
