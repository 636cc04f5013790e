"""Loaders: Python files that are copied into folders of deployed models as `model.py`.

They do not need Meshwright. `load()` reads the folder's `model.json` and the model, and
returns an object that is called with an array for each input by name, and returns a
dict of arrays.
"""
