"""Gathers of scanned weights one iteration ahead of the products that read them.

In: a device program, and a test that says which all-gathers move. Out: the program in
which a loop gathers the weights of its next iteration and carries them, or the reason why
a gather stays. Begin reading at `gather_ahead.py`; `loop_gathers.py` finds the gathers.
"""

from meshwright.partitioner.lower.ahead.gather_ahead import gather_ahead
from meshwright.partitioner.lower.ahead.loop_gathers import LoopGather, loop_gathers

__all__ = ["LoopGather", "gather_ahead", "loop_gathers"]
