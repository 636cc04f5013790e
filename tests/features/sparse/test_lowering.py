"""Programs as linalg modules, and what has no sparse form; needs no MLIR."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as ss

import meshwright as mw
from meshwright.errors import SparseError
from meshwright.features.sparse.mlir.emitter import Tensor
from meshwright.features.sparse.mlir.formats import parse_format
from meshwright.features.sparse.storage import pack, unpack
from meshwright.program.ir import Value

S = jax.ShapeDtypeStruct((6, 8), jnp.float32)
T = jax.ShapeDtypeStruct((8, 6), jnp.float32)
D = jax.ShapeDtypeStruct((8, 4), jnp.float32)


def product(s, d):
    return s @ d


def test_a_product_holds_a_tile_of_the_result_in_registers():
    text = mw.sparse(product, {"s": "csr"}).lower(S, D).module.text
    assert (
        "#F0 = #sparse_tensor.encoding<{ map = (i, j) -> (i : dense, j : compressed), "
        "posWidth = 32, crdWidth = 32 }>"
    ) in text
    assert "linalg.generic" not in text
    assert text.count("vector.store") == 1
    assert "vector<4xf32>" in text
    turned = mw.sparse(lambda s, d: s.T @ d, {"s": "csr"}).lower(S, S).module.text
    first, last = turned.index("vector.load"), turned.rindex("scf.for")
    assert first < last  # a row of the dense operand is loaded before the inner loop


def test_columns_are_tiles_and_then_the_binary_digits_of_the_rest():
    wide = jax.ShapeDtypeStruct((8, 64 + 32 + 4 + 1), jnp.float32)
    text = mw.sparse(product, {"s": "csr"}).lower(S, wide).module.text
    sizes = {line.split()[-1] for line in text.splitlines() if "vector.store" in line}
    assert sizes == {f"vector<{n}xf32>" for n in (64, 32, 4, 1)}


def test_without_formats_the_same_path_makes_dense_code():
    text = mw.sparse(product).lower(S, D).module.text
    assert "sparse_tensor" not in text
    assert "vector<4xf32>" in text  # also of few columns
    small = jax.ShapeDtypeStruct((2, 8), jnp.float32)
    text = mw.sparse(product).lower(small, D).module.text
    assert 'iterator_types = ["parallel", "reduction", "parallel"]' in text


def test_a_product_under_a_sparse_mask_is_one_op_on_stored_elements():
    def sddmm(s, a, b):
        return s * (a @ b)

    a = jax.ShapeDtypeStruct((6, 3), jnp.float32)
    b = jax.ShapeDtypeStruct((3, 8), jnp.float32)
    text = mw.sparse(sddmm, {"s": "csr", "out": "csr"}).lower(S, a, b).module.text
    assert text.count("linalg.generic") == 1
    assert "vector.fma" not in text
    dense = mw.sparse(sddmm).lower(S, a, b).module.text
    assert dense.count("linalg.generic") == 1  # of the mask; the product has tiles
    assert "vector.fma" in dense


def test_a_transposition_of_a_sparse_operand_is_only_noted():
    formats = {"s": "csr", "out": "csr"}
    text = mw.sparse(lambda s, d: s.T * d, formats).lower(S, T).module.text
    assert text.count("linalg.generic") == 1


def test_only_inputs_that_are_read_in_order_are_sorted():
    def both(s, t):
        return s @ t.T, t + t

    module = (
        mw.sparse(both, {"s": "csr", "t": "csr", "out.1": "csr"}).lower(S, S).module
    )
    assert module.ordered == {1}


def test_ops_that_need_a_dense_copy_are_named_with_their_lines():
    lowered = mw.sparse(lambda s: jnp.exp(s), {"s": "csr"}).lower(S)
    (place,) = lowered.module.expanded
    assert place.startswith("tests/features/sparse/test_lowering.py:")
    assert place.endswith(" exp")
    assert f"// made dense: {place}" in str(lowered)


@pytest.mark.parametrize(
    ("formats", "wanted"),
    [
        ({"s": "crs"}, r"format 'crs' is unknown; .*did you mean 'csr'"),
        ({"s": "bsr:0"}, "blocks of 'bsr:0' have no size"),
        ({"s": "csr:2"}, "format 'csr:2' is unknown"),
        ({"s": "bsr:4"}, r"s cannot be bsr:4x4: blocks of \(4, 4\) do not divide"),
        (
            {"x.**": "csr"},
            r"'x\.\*\*' matches no argument or result; there are s, d, out",
        ),
    ],
)
def test_a_format_that_does_not_fit_is_refused(formats, wanted):
    with pytest.raises(SparseError, match=wanted):
        mw.sparse(product, formats).lower(S, D)


def test_calls_that_do_not_fit_are_refused():
    with pytest.raises(SparseError, match="formats are 'csr'; wanted a dict"):
        mw.sparse(product, "csr")
    with pytest.raises(SparseError, match="sparse wants a function, got 3"):
        mw.sparse(3)
    for transform in (jax.jit, jax.grad):
        with pytest.raises(SparseError, match="called while JAX traces"):
            transform(mw.sparse(jnp.sum))(jnp.ones((3, 4)))


def test_only_matrices_have_sparse_formats():
    with pytest.raises(
        SparseError, match="csr is for matrices, and the array has shape"
    ):
        mw.sparse(jnp.sum, {"a": "csr"}).lower(jax.ShapeDtypeStruct((3,), jnp.float32))


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda s: jnp.sort(s), r"sort at .*test_lowering.py:\d+ has no sparse form"),
        (
            lambda s: s.astype(jnp.bfloat16),
            r"at .*:\d+ has a value of bfloat16; wanted",
        ),
        (
            lambda s: jax.lax.fori_loop(0, 3, lambda i, c: c + 1, s),
            r"scan at .*test_lowering.py:\d+ has no sparse form",
        ),
    ],
)
def test_what_has_no_sparse_form_is_named_with_its_line(fn, wanted):
    with pytest.raises(SparseError, match=wanted):
        mw.sparse(fn, {"s": "csr"}).lower(S)


@pytest.mark.parametrize("text", ["csr", "csc", "coo", "bsr:2x4"])
def test_a_matrix_is_unpacked_as_it_was_packed(text):
    form = parse_format(text)
    assert form is not None
    assert str(form) == text
    given = ss.random_array((6, 8), density=0.3, rng=0, dtype=np.float32)
    buffers = pack(given, form, np.float32, "s", wants_order=True)
    held = Tensor.held(Value((6, 8), "float32"), form)
    np.testing.assert_array_equal(
        unpack(buffers, held, form).toarray(), given.toarray()
    )
