"""Training from a recipe: a TOML file with model, data, tactics, optimizer and output.

In: a recipe. Out: checkpoints, metrics, and the state after the last step. Begin reading at
`train.py`, which goes through a run from start to end. `loop.py` is the loop of steps,
which uses devices only through a `Runner` of `runners`. `recipes` reads the file
and loads what it names; `data` reads the examples.
"""
