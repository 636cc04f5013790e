"""Training by a recipe: a TOML file that names model, data, tactics, optimizer and output.

`train.py` goes through a run from start to end; `loop.py` is the loop itself, which sees
devices only through the protocol `Runner` of `runners`. `recipes` reads the file and what
it names, `data` its examples.
"""
