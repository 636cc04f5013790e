"""An inlining policy that learns from measured flips of single decisions.

In: a corpus (`..corpus`). Out: a policy file of a few KB that NumPy runs. Begin reading at
`train.py`; `inline_policy.py` decides, and `serve.py` answers the compilers of a build.
"""
