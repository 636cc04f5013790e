"""The form of an op's definition, and the registry of the definitions of all ops.

A definition has a factor rule (how the dims of operands and results can be sharded),
traits (properties that passes ask for) and a function that counts the op's work. The
definitions themselves are in `program/ops`, one file per family of ops. To add an op:

1. Open the file of its family in `program/ops/arithmetic` (ops that compute) or
   `program/ops/movement` (ops that move elements), or add a file.
2. Write a function from `Op` to `FactorRule` under `@rule("primitive_name")`. Most ops
   need only letters, as in `return "ik,kj->ij"`. `rule.py` defines what letters mean,
   and `factors.py` has tools for rules whose letters depend on shapes or parameters. If
   the part of an op on one device is not the same op on smaller shapes, the rule also
   needs an `expand` function (see `builder.py`).
3. Pass `traits=` and `work=` to `rule` (see `registry.py`), if any apply.
4. Add an example to `tests/program/ops/catalogue`. The tests then split each factor,
   run the parts on simulated devices, and compare the numbers with those of the unsplit
   op.
"""
