"""Costs of register allocation by function, and the code with the better functions of two.

Begin reading at `costs.py`, which says what is measured; `assembler.py` joins the code.
"""
