"""Loaders that are copied into the folders of deployed models, and need no Meshwright.

Each becomes a module `model.py`, whose `load()` is called with arrays by name. In: the
folder's `model.json` and the model file. Out: a dict of arrays.
"""
