"""Deployment: a JAX function as a folder that runs without JAX, elsewhere.

In: a function, its arguments, and the name of a target. Out: a folder with the model, a
loader in Python and a README, and a `Deployment` that says how far its results are from
JAX's. Begin reading at `deploy.py`; `model.py` is what all targets read, `targets.py`
lists them.
"""
