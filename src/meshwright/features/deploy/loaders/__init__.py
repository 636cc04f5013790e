"""Loaders: Python files that are copied into folders of deployed models.

They do not need Meshwright. `model.py` is the same in every folder: `load()` reads the
folder's `model.json`, and returns an object that is called with an array for each input
by name, and returns a dict of arrays. It runs the model by `open_model` of the folder's
`runtime.py`, which is the file here that is named after the target's runtime.
"""
