"""Parts of the rules that learn: what is known of objects, examples, trees, a network.

In: requests for objects. Out: features of objects, and predictions from them. Begin reading
at `histories.py`; the rules are in `halp.py`, `lrb.py`, `lhd.py` and `learned.py`.
"""
