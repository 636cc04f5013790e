"""Kernels as IREE 3.13 prints them, for tests that run without it."""

from meshwright.features.tune.iree.kernel import parse_kernel
from meshwright.features.tune.iree.tiling import Tiling

PEELED = "pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {enable_loop_peeling}"

MATMUL_ROOT = (
    "%6 = linalg.matmul ins(%2, %3 : tensor<64x96xf32>, tensor<96x128xf32>) "
    "outs(%5 : tensor<64x128xf32>) -> tensor<64x128xf32>"
)
MATMUL = f"""func.func @kernel(%2: tensor<64x96xf32>, %3: tensor<96x128xf32>) -> \
(tensor<64x128xf32>) {{
%cst = arith.constant 0.000000e+00 : f32
%4 = tensor.empty() : tensor<64x128xf32>
%5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<64x128xf32>) -> tensor<64x128xf32>
{MATMUL_ROOT}
%7 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, \
affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}} \
ins(%6 : tensor<64x128xf32>) outs(%4 : tensor<64x128xf32>) {{
^bb0(%in: f32, %out: f32):
%8 = math.tanh %in : f32
linalg.yield %8 : f32
}} -> tensor<64x128xf32>
return %7 : tensor<64x128xf32>
}}
"""

_LOOPS = "(d0, d1, d2, d3, d4, d5, d6)"
_KINDS = ", ".join(['"parallel"'] * 4 + ['"reduction"'] * 3)
CONV_ROOT = (
    "%6 = linalg.generic {indexing_maps = ["
    f"affine_map<{_LOOPS} -> (d0, d1 * 2 + d4, d2 * 2 + d5, d6)>, "
    f"affine_map<{_LOOPS} -> (d4, d5, d6, d3)>, affine_map<{_LOOPS} -> (d0, d1, d2, d3)>], "
    f"iterator_types = [{_KINDS}]}} ins(%2, %3 : tensor<2x29x29x16xf32>, "
    """tensor<3x3x16x32xf32>) outs(%5 : tensor<2x14x14x32xf32>) {
^bb0(%in: f32, %in_0: f32, %out: f32):
%8 = arith.mulf %in, %in_0 : f32
%9 = arith.addf %out, %8 : f32
linalg.yield %9 : f32
} -> tensor<2x14x14x32xf32>"""
)
CONV = f"""func.func @kernel(%2: tensor<2x29x29x16xf32>, %3: tensor<3x3x16x32xf32>) -> \
(tensor<2x14x14x32xf32>) {{
%cst = arith.constant 0.000000e+00 : f32
%4 = tensor.empty() : tensor<2x14x14x32xf32>
%5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<2x14x14x32xf32>) \
-> tensor<2x14x14x32xf32>
{CONV_ROOT}
return %6 : tensor<2x14x14x32xf32>
}}
"""


def matmul_kernel():
    default = Tiling((64, 64, 0), (8, 8, 0), (0, 0, 8))
    return parse_kernel(MATMUL, MATMUL_ROOT, default, PEELED)


def conv_kernel():
    default = Tiling(
        (1, 2, 14, 32, 0, 0, 0), (1, 1, 2, 4, 0, 0, 0), (0,) * 4 + (1, 1, 8)
    )
    pipeline = "pipeline = #iree_cpu.pipeline<ConvTileAndDecomposeExpert>"
    return parse_kernel(CONV, CONV_ROOT, default, pipeline)
