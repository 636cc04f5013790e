"""The passes of a compiler that fuses like XLA and does nothing else.

It is used for machines whose real compiler is not modelled.
"""

from meshwright.predict.compilers.hlo.compilation import Compiler
from meshwright.predict.compilers.hlo.policies import BufferPolicy
from meshwright.predict.compilers.xla.pipeline import XLA_PASSES
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION

PLAIN = Compiler("plain", "", frozenset(), XLA_PASSES, XLA_FUSION, BufferPolicy())
