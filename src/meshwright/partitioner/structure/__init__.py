"""What a program is made of, as tactics ask for it: parameters, activations, products.

Begin reading at `workspace.py`: a tactic calls its `cut`, which records a `Refusal`, with
the reason in words, for each dim that cannot be cut.
"""
