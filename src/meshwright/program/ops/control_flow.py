"""Region ops: loops, branches and remat, which run nested programs.

They have no factor rule. Their wires (`ir.Wire`) say which values inside and outside are
the same, so that propagation and lowering enter the bodies, whose ops have rules.
"""

from __future__ import annotations

from meshwright.program.rules.traits import Trait, add_traits

add_traits((Trait.REGION,), "cond", "remat", "scan", "while")
add_traits((Trait.LOOP,), "scan", "while")
