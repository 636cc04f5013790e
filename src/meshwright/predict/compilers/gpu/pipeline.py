"""The pipeline of XLA's GPU compiler: XLA's common passes, and asynchronous collectives."""

from meshwright.predict.compilers.hlo.compilation import Compiler
from meshwright.predict.compilers.hlo.policies import BufferPolicy
from meshwright.predict.compilers.xla.pipeline import XLA_PASSES
from meshwright.predict.compilers.xla.producer_fusion import XLA_FUSION

_ASYNC_COLLECTIVES = frozenset(
    {"all_gather", "all_reduce", "all_to_all", "permute", "reduce_scatter"}
)

GPU = Compiler(
    "gpu", "cuda", _ASYNC_COLLECTIVES, XLA_PASSES, XLA_FUSION, BufferPolicy()
)
