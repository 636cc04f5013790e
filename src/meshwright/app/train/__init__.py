"""Training from a recipe: a TOML file with model, data, tactics, optimizer and output.

`train.py` goes through a run from start to end. `loop.py` is the loop of steps, which sees
devices only through the protocol `Runner` of `runners`. `recipes` reads the file and loads
what it names; `data` reads the examples.
"""
