"""Kernels, tilings, their space and specs, without IREE."""

import re

import pytest

from meshwright.errors import CompilerError
from meshwright.features.tune.collect.tiles import tiling_features, tiling_of
from meshwright.features.tune.iree import toolchain
from meshwright.features.tune.iree.find_kernels import find_root, standalone
from meshwright.features.tune.iree.kernel import parse_kernel
from meshwright.features.tune.iree.space import TileSpace, lane_loop, row_loops
from meshwright.features.tune.iree.spec import tuning_spec
from meshwright.features.tune.iree.tiling import Tiling
from tests.features.tune.iree.kernels import (
    CONV,
    CONV_ROOT,
    MATMUL,
    conv_kernel,
    matmul_kernel,
)

KERNELS = {"matmul": matmul_kernel, "conv": conv_kernel}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]()


def test_loops_are_read_from_operands_and_indexing_maps():
    matmul, conv = matmul_kernel(), conv_kernel()
    assert str(matmul) == "matmul 64x128x96 f32 + tanh"
    assert [loop.is_reduction for loop in matmul.loops] == [False, False, True]
    assert str(conv) == "conv 2x14x14x32x3x3x16 f32"
    assert conv.operands[0].index[1] == ((1, 2), (4, 1))  # strided rows of a window
    assert (lane_loop(matmul), row_loops(matmul)) == (1, [0])
    assert (lane_loop(conv), row_loops(conv)) == (3, [1, 2])


def test_a_fingerprint_depends_on_the_kernel_and_not_on_names_of_values():
    known = matmul_kernel()
    renamed = MATMUL.replace("%4", "%empty").replace("%in", "%x")
    root = find_root(renamed)
    assert (
        parse_kernel(renamed, root, known.default, known.pipeline).fingerprint
        == known.fingerprint
    )
    other = MATMUL.replace("math.tanh", "math.exp")
    assert (
        parse_kernel(other, find_root(other), known.default, known.pipeline).fingerprint
        != known.fingerprint
    )


def test_the_root_is_the_only_op_that_multiplies_and_adds():
    assert find_root(CONV) == CONV_ROOT
    with pytest.raises(CompilerError, match="more than one"):
        find_root(CONV + CONV)
    with pytest.raises(CompilerError, match="no matmul or convolution"):
        find_root(
            "%5 = linalg.fill ins(%c : f32) outs(%4 : tensor<8xf32>) -> tensor<8xf32>"
        )


DISPATCH = """
  %c0 = arith.constant 0 : index
  %0 = hal.interface.constant.load layout(<constants = 1>) ordinal(0) : i32
  %1 = arith.index_castui %0 : i32 to index
  %2 = hal.interface.binding.subspan layout(<bindings = []>) binding(0) : !any
  %6 = iree_tensor_ext.dispatch.workload.ordinal %1, 0 : index
  %7 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [%6, 0], sizes = [1, 32], \
strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<2x32xf32>> \
-> tensor<32xf32>
  %8 = linalg.copy ins(%7 : tensor<32xf32>) outs(%7 : tensor<32xf32>) -> tensor<32xf32>
  iree_tensor_ext.dispatch.tensor.store %8, %2, offsets = [0], sizes = [32], strides = [1] \
: tensor<32xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<32xf32>>
"""


def test_a_dispatch_in_a_loop_becomes_a_function_without_the_loops_counter():
    text = standalone(DISPATCH)
    assert text.startswith(
        "func.func @kernel(%7: tensor<32xf32>) -> (tensor<32xf32>) {"
    )
    assert "%6" not in text
    assert "return %8 : tensor<32xf32>" in text
    scaled = DISPATCH.replace("linalg.copy ins(%7 :", "linalg.fill ins(%6 :")
    with pytest.raises(CompilerError, match="known only when it runs"):
        standalone(scaled)


def test_an_op_without_known_maps_is_refused_with_its_name():
    root = CONV_ROOT.replace("linalg.generic", "linalg.odd").replace(
        "affine_map", "map"
    )
    with pytest.raises(CompilerError, match=r"linalg\.odd has no indexing maps"):
        parse_kernel(CONV, root, conv_kernel().default, "pipeline = x")
    root = CONV_ROOT.replace("d1 * 2 + d4", "d1 floordiv 2")
    with pytest.raises(CompilerError, match="addressed by 'd1 floordiv 2'"):
        parse_kernel(CONV, root, conv_kernel().default, "pipeline = x")


def test_tilings_read_back_from_their_text(kernel):
    for tiling in TileSpace.of(kernel).sample(20, 0):
        assert Tiling.parse(tiling.attribute) == tiling
    with pytest.raises(CompilerError, match="no tile sizes"):
        Tiling.parse("#iree_gpu.lowering_config<{workgroup = [4]}>")
    with pytest.raises(CompilerError, match="one number from 0 per loop"):
        Tiling((4, 4), (4,), (0, 0))


def test_features_of_a_tiling_are_the_24_of_tpugraphs_and_read_back(kernel):
    for tiling in TileSpace.of(kernel).sample(20, 0):
        features = tiling_features(kernel, tiling)
        assert features.shape == (24,)
        assert tiling_of(kernel, features) == tiling


def test_vectors_fit_into_what_iree_compiles(kernel):
    for tiling in TileSpace.of(kernel).sample(200, 0):
        products = 1
        for size in (*tiling.parallel, *tiling.reduction):
            products *= size or 1
        assert 4 * products < 16384


def test_sizes_divide_each_other_where_no_rest_is_peeled_off():
    kernel = conv_kernel()
    for tiling in TileSpace.of(kernel).sample(200, 1):
        for loop, group, vector in zip(
            kernel.loops, tiling.distribution, tiling.parallel, strict=True
        ):
            if not loop.is_reduction:
                assert loop.size % group == 0
                assert group % vector == 0


def test_a_sample_has_no_repetition_and_neighbours_stay_in_the_space(kernel):
    space = TileSpace.of(kernel)
    drawn = space.sample(50, 3)
    assert len(set(drawn)) == 50
    assert drawn == space.sample(50, 3)
    every = set(space)
    assert len(every) == len(space)
    near = space.neighbours(drawn[0])
    assert near
    assert set(near) <= every - {drawn[0]}


def test_a_spec_matches_each_root_op_and_names_its_tiles():
    kernels = [matmul_kernel(), conv_kernel()]
    text = tuning_spec({kernel: kernel.default for kernel in kernels})
    assert text.count("transform.iree.match.cast_compatible_dag_from_root") == 2
    assert "^bb0(%2: tensor<64x96xf32>, %3: tensor<96x128xf32>, %5:" in text
    for kernel in kernels:
        assert kernel.root in text
        assert kernel.default.attribute in text
    assert "@match_0 -> @apply_tiles,\n    @match_1 -> @apply_tiles" in text
    assert text.count("{") == text.count("}")


def test_an_error_names_the_extra_if_iree_is_missing(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(toolchain, "import_module", missing)
    toolchain._compiler.cache_clear()
    with pytest.raises(CompilerError, match=re.escape("meshwright[iree]")):
        toolchain.compile_program("module {}")
    toolchain._compiler.cache_clear()
