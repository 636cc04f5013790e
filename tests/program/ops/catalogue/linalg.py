"""Factorisations and solves over batches of small matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import linalg

from tests.program.ops.catalogue import Example

_RNG = np.random.default_rng(16)


def _array(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_A = _array(4, 2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
_S = _A @ np.swapaxes(_A, -1, -2)
_TALL = _array(4, 2, 5, 3)
_TAUS = np.abs(_array(4, 2, 3))
_WIDE = _array(4, 2, 3, 4)
_L = np.tril(_A)
_BAND = _array(3, 4, 6) + np.array([0, 4, 0], np.float32)[:, None, None]
_BAND[0, :, 0] = 0
_BAND[2, :, -1] = 0
_RIGHT = _array(4, 6, 8)
_PIVOTS = np.array([[2, 2, 2], [0, 1, 2], [1, 2, 2], [2, 1, 2]], np.int32)


def _solve(left, **more):
    return lambda a, b: linalg.triangular_solve(
        a, b, left_side=left, lower=True, **more
    )


def _gradient(fn, num=1):
    def loss(*args):
        leaves = jax.tree.leaves(fn(*args))
        return sum(jnp.sum(jnp.sin(jnp.abs(leaf))) for leaf in leaves)

    return jax.grad(loss, tuple(range(num)))


def _rotate(left, transpose):
    return lambda a, taus, c: linalg.ormqr(a, taus, c, left=left, transpose=transpose)


def _symmetric(a, c):
    return linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True)


def _values(a):
    return jnp.sort(jnp.abs(linalg.eig(a)[0]), -1)


def _triangle(a):
    return linalg.schur(a, compute_schur_vectors=False)


def _by_hand(a, b):
    return lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, y: jnp.linalg.inv(a) @ y, symmetric=True
    )


def _permutation(pivots):
    return linalg.lu_pivots_to_permutation(pivots, 5)


EXAMPLES: list[Example] = [
    Example("cholesky", linalg.cholesky, (_S,)),
    Example("cholesky_one", linalg.cholesky, (_S[0, 0],)),
    Example("cholesky_update", linalg.cholesky_update, (_L[0, 0].T, _A[0, 0, 0])),
    Example("eig", _values, (_S,)),
    Example("eigh_values", lambda a: linalg.eigh(a)[1], (_S,)),
    Example("eigh_vectors", lambda a: jnp.abs(linalg.eigh(a)[0]), (_S,)),
    Example("hessenberg", linalg.hessenberg, (_A,)),
    Example("householder_product", linalg.householder_product, (_TALL, _TAUS)),
    Example("lu", linalg.lu, (_A,)),
    Example("lu_tall", linalg.lu, (_TALL,)),
    Example("lu_pivots_to_permutation", _permutation, (_PIVOTS,)),
    *(
        Example(f"ormqr_{left}_{flip}", _rotate(left, flip), (_TALL, _TAUS, c))
        for left, c in ((True, _array(4, 2, 5, 4)), (False, _array(4, 2, 4, 5)))
        for flip in (False, True)
    ),
    Example("qr", lambda a: linalg.qr(a, full_matrices=False), (_TALL,)),
    Example("qr_full", linalg.qr, (_TALL,)),
    Example("qr_pivoting", lambda a: linalg.qr(a, pivoting=True), (_TALL,)),
    Example("schur", linalg.schur, (_S,)),
    Example(
        "schur_values", lambda a: linalg.schur(a, compute_schur_vectors=False), (_S,)
    ),
    Example("svd", lambda a: jnp.linalg.svd(a, full_matrices=False)[1], (_WIDE,)),
    Example("svd_full", lambda a: linalg.svd(a), (_WIDE,)),
    Example("svd_values", lambda a: linalg.svd(a, compute_uv=False), (_TALL,)),
    Example("symmetric_product", _symmetric, (_WIDE, _S)),
    Example("triangular_solve_left", _solve(True), (_L, _WIDE)),
    Example("triangular_solve_right", _solve(False, transpose_a=True), (_L, _TALL)),
    Example("triangular_solve_unit", _solve(True, unit_diagonal=True), (_L, _WIDE)),
    Example("tridiagonal", lambda a: linalg.tridiagonal(a), (_S,)),
    Example("tridiagonal_solve", linalg.tridiagonal_solve, (*_BAND, _RIGHT)),
    Example("custom_linear_solve", _by_hand, (_S[0, 0], _A[0, 0, 0])),
    Example("solve", jnp.linalg.solve, (_A, _WIDE)),
    Example("inverse", jnp.linalg.inv, (_A,)),
    Example("determinant", jnp.linalg.det, (_A,)),
    Example(
        "least_squares",
        jax.vmap(lambda a, b: jnp.linalg.lstsq(a, b)[0]),
        (_TALL[:, 0], _TALL[:, 1]),
    ),
    Example("grad_cholesky", _gradient(linalg.cholesky), (_S,)),
    Example("grad_lu", _gradient(lambda a: linalg.lu(a)[0]), (_A,)),
    Example("grad_qr", _gradient(lambda a: jnp.linalg.qr(a)), (_TALL,)),
    Example("grad_eigh", _gradient(lambda a: linalg.eigh(a)[1]), (_S,)),
    Example(
        "grad_svd",
        _gradient(lambda a: jnp.linalg.svd(a, compute_uv=False)),
        (_WIDE,),
    ),
    Example("grad_triangular_solve", _gradient(_solve(True), 2), (_L, _WIDE)),
    Example("grad_triangular_right", _gradient(_solve(False), 2), (_L, _TALL)),
    Example("grad_solve", _gradient(jnp.linalg.solve, 2), (_A, _WIDE)),
    Example(
        "grad_tridiagonal_solve",
        _gradient(linalg.tridiagonal_solve, 4),
        (*_BAND, _RIGHT),
    ),
]
