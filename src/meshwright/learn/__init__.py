"""Learning: ranking losses, and measures of a ranking, for models of any kind.

It knows nothing of programs and machines. In: scores and measured values as arrays. Out:
a loss to differentiate (`losses.py`), or how well scores rank (`ranking.py`). Begin reading
at `losses.py`.
"""
