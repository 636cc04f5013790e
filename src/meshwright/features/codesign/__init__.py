"""Models searched for their machine, and chips laid out: `nas` and `floorplan`.

In: a space of models, a model to rewrite, or a netlist. Out: models with their accuracy and
latency, or a placement of macros. Begin reading at `nas/command.py` and
`floorplan/command.py`, which are `meshwright nas` and `meshwright floorplan`.
"""
