"""The passes of a compiler that fuses like XLA and does nothing else.

It is used for machines whose real compiler is not modelled.
"""

from meshwright.predict.compilers.model.compilation import Compiler
from meshwright.predict.compilers.model.policies import BufferPolicy
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION
from meshwright.predict.compilers.xla.shared_passes import XLA_PASSES

PLAIN = Compiler("plain", "", frozenset(), XLA_PASSES, XLA_FUSION, BufferPolicy())
