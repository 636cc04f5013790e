"""Loaders that are copied into the folders of deployed models, and need no Meshwright.

Each is a module `model.py` with a class `Model`, called with arrays by name. In: the
folder's `model.json` and the model file. Out: a dict of arrays.
"""
