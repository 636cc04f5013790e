"""Models searched for their machine, machines for their models, and chips laid out.

In: a space of models, programs to run on a new chip, or a netlist. Out: models with their
accuracy and latency, a design of an accelerator, or a placement of macros. Begin reading at
`nas/command.py`, `accelerator/command.py`, `joint/command.py` and `floorplan/command.py`:
`meshwright nas`, `meshwright accelerator`, `meshwright codesign`, `meshwright floorplan`.
"""
