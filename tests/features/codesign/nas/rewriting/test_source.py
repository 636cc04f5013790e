"""What is written as source computes what the program does, whatever ops it has."""

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from meshwright.codesign import nas
from meshwright.errors import NasError
from meshwright.features.codesign.nas.rewriting.network import capture_network
from meshwright.features.codesign.nas.rewriting.source import arrays_of, source_of
from tests.features.codesign.nas.rewriting.models import task

_INDICES = np.random.default_rng(0).integers(0, 6, (8, 5)).astype(np.int32)
_NUMBERS = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)


def _mean_of_rows(w: jax.Array, x: jax.Array) -> jax.Array:
    return w[x].mean(1)


def _taken(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.take(w, x, axis=0, mode="clip").sum(1)


def _sorted(w: jax.Array, x: jax.Array) -> jax.Array:
    y = x @ w
    return jnp.sort(y, -1) + jnp.take_along_axis(y, jnp.argsort(y, -1), -1)


def _stacked(w: jax.Array, x: jax.Array) -> jax.Array:
    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return carry + row @ w, jnp.tanh(carry)

    return lax.scan(step, jnp.zeros(4), x)[1]


def _set(w: jax.Array, x: jax.Array) -> jax.Array:
    y = (x @ w).at[jnp.array([0, 2])].set(1.0)
    return y.at[:, jnp.array([0, 1])].add(2.0).at[jnp.array([1])].max(0.5)


def _apart(w: jax.Array, x: jax.Array) -> jax.Array:
    (y,) = lax.split(x @ w, (4,), 1)
    return jnp.tile(jnp.unstack(y[:, None], axis=1)[0], (1, 2))


def _counted(w: jax.Array, x: jax.Array) -> jax.Array:
    y = x @ w
    return jax.nn.one_hot(y.argmax(-1), 4) + y * jnp.arange(4)


def _in_bfloat16(w: jax.Array, x: jax.Array) -> jax.Array:
    narrow = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    dims = (((1,), (0,)), ((), ()))
    return lax.dot_general(*narrow, dims, preferred_element_type=jnp.float32)


def _floors(w: jax.Array, x: jax.Array) -> jax.Array:
    steps = lax.div(jnp.arange(8) - 4, 3)
    return w[x // 2].sum(1) * (jnp.arange(8) // 3 + steps)[:, None]


def _of_each_row(w: jax.Array, x: jax.Array) -> jax.Array:
    def one(row: jax.Array, i: jax.Array) -> jax.Array:
        return row.at[i].add(1.0) + row[i]

    return jax.vmap(one)(x @ w, jnp.arange(8) % 4)


def _pooled(w: jax.Array, x: jax.Array) -> jax.Array:
    y = lax.reduce_window(
        x @ w, 0.0, lax.add, (3, 1), (1, 1), "VALID", window_dilation=(2, 1)
    )
    shift = jnp.reshape(jnp.float32(2.0), (1, 1))
    return y + shift + lax.integer_pow(jnp.float32(-3.0), 2)


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (_mean_of_rows, _INDICES),
        (_taken, _INDICES),
        (_floors, _INDICES),
        *(
            (fn, _NUMBERS)
            for fn in (
                _sorted,
                _stacked,
                _set,
                _apart,
                _counted,
                _in_bfloat16,
                _of_each_row,
                _pooled,
            )
        ),
    ],
)
def test_source_computes_what_the_program_does(
    fn: Callable[..., Any], x: np.ndarray, tmp_path: Path
):
    w = jax.random.normal(jax.random.key(0), (6, 4))
    found = _as_written(fn, w, x, tmp_path)
    wanted = fn(w, x)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_weights_in_bfloat16_are_read_again(tmp_path: Path):
    w, x = jnp.ones((6, 4), jnp.bfloat16), jnp.asarray(_NUMBERS, jnp.bfloat16)
    found = _as_written(lambda w, x: x @ w, w, x, tmp_path)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, x @ w)


def _as_written(
    fn: Callable[..., Any], w: jax.Array, x: Any, tmp_path: Path
) -> jax.Array:
    """What the written source gives for a batch."""
    network = capture_network(fn, w, jax.ShapeDtypeStruct(x.shape, x.dtype))
    weights = network.initial([w], jax.random.key(1))
    (tmp_path / "model.py").write_text(source_of(network, "A model."))
    np.savez(tmp_path / "weights.npz", **arrays_of(network, weights))  # pyright: ignore[reportArgumentType]
    module = runpy.run_path(str(tmp_path / "model.py"))
    return module["apply"](module["load"](), x)


def test_a_function_on_indexed_elements_has_no_source():
    def fn(w: jax.Array, x: jax.Array) -> jax.Array:
        return (x @ w).at[0].apply(jnp.sin)

    x = jax.ShapeDtypeStruct((8, 6), np.float32)
    network = capture_network(fn, jnp.ones((6, 4)), x)
    with pytest.raises(NasError, match="no source can be written"):
        source_of(network, "A model.")


def test_a_model_without_a_source_is_refused_before_the_search(tmp_path: Path):
    def fn(params: Any, x: jax.Array) -> jax.Array:
        flat = x.reshape(len(x), -1) @ params
        return flat + jax.pure_callback(np.sin, flat[:, :1], flat[:, :1])

    given = replace(
        task(steps=1), fn=fn, init=lambda key: jax.random.normal(key, (48, 2))
    )
    trained: list[Any] = []
    with pytest.raises(NasError, match="no source can be written"):
        nas.rewrite(given, trials=1, out=tmp_path, on_trial=trained.append)
    assert not trained


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"loss": lambda s, y: s.argmax(-1) == y},
            r"loss gives bool\[16\] for a batch",
        ),
        (
            {"score": lambda s, y: (s.argmax(-1) == y).mean()},
            r"score gives float32\[\]",
        ),
        ({"score": lambda s, y: s}, r"wanted \[16\]"),
    ],
)
def test_losses_and_scores_of_another_shape_are_said(
    change: dict[str, Any], message: str
):
    with pytest.raises(NasError, match=message):
        nas.rewrite(replace(task(steps=1), **change), trials=1)


def test_inputs_of_another_shape_are_said():
    given = task(steps=1)
    x, y = given.validation
    with pytest.raises(NasError, match="an input of validation has the shape"):
        replace(given, validation=(x[:, :3], y))
    with pytest.raises(NasError, match="validation has a list; wanted arrays"):
        replace(given, validation=(x, y.tolist()))


def test_a_training_that_diverges_is_no_result():
    given = task(steps=2)
    with pytest.raises(NasError, match="weights are not finite after 2 steps"):
        nas.rewrite(replace(given, fn=lambda p, x: given.fn(p, x) / 0.0), trials=1)
