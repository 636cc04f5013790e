"""The form of an op's definition: factor rule, traits and work; and the op registry.

The definitions themselves are in `program/ops`, one file per family of ops. To add an op:

1. Open the file of its family in `program/ops/arithmetic` (ops that compute) or
   `program/ops/movement` (ops that move elements), or add a file.
2. Write a function from `Op` to `FactorRule` under `@rule("primitive_name")`. Most ops
   need only letters, as in `return "ik,kj->ij"`; `rule.py` says what letters mean, and
   `factors.py` has what rules with computed letters use. An op whose part on one device
   is not the same op on smaller shapes also needs an `expand` (see `builder.py`).
3. Pass `traits=` and `work=` to `rule` (see `registry.py`), if any apply.
4. Add an example to `tests/program/ops/catalogue`: tests then split each factor, run the
   parts on simulated devices, and compare the numbers with the unsplit op.
"""
