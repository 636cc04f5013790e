"""Models searched for their machine, and machines searched for their models.

`nas` is the search for a model; each other room of this folder is a search of its own kind.
"""
