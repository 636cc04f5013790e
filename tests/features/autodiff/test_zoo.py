"""Derivatives of the zoo's losses, at the place where its training steps take them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from meshwright.program.capture import capture
from tests.features.autodiff.compare import assert_close, both, direction
from zoo.catalogue import WORKLOADS

REAL = jax.value_and_grad


class Recorder:
    """Stands for `jax.value_and_grad` and `jax.grad`, and compares at each of their calls.

    found: for each call the result, tangents and cotangents by both, as arrays.
    """

    def __init__(self) -> None:
        self.found: list[Any] = []

    def value_and_grad(self, loss: Callable[..., Any], has_aux: bool = False) -> Any:
        def run(params: Any, *rest: Any) -> Any:
            self.compare(lambda p: loss(p, *rest), params)
            return REAL(loss, has_aux=has_aux)(params, *rest)

        return run

    def grad(self, loss: Callable[..., Any], has_aux: bool = False) -> Any:
        def run(*args: Any) -> Any:
            value, gradient = self.value_and_grad(loss, has_aux)(*args)
            return (gradient, value[1]) if has_aux else gradient

        return run

    def compare(self, fn: Callable[..., Any], params: Any) -> None:
        rng = np.random.default_rng(0)
        tangents = jax.tree.map(lambda x: direction(x, rng), (params,))
        shapes = jax.eval_shape(fn, params)
        cotangents = jax.tree.map(lambda x: direction(x, rng), shapes)
        pairs = both(fn, (params,), tangents, cotangents)
        jax.debug.callback(self.found.append, pairs)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
def test_each_loss_of_the_zoo_has_the_derivatives_of_jax(workload, monkeypatch):
    step, args = workload.tiny()
    recorder = Recorder()
    monkeypatch.setattr(jax, "value_and_grad", recorder.value_and_grad)
    monkeypatch.setattr(jax, "grad", recorder.grad)
    jax.block_until_ready(jax.jit(step)(*args))
    jax.effects_barrier()
    if not recorder.found:
        assert not capture(step, args).ties, "the step returns what it was to train"
    for pairs in recorder.found:
        assert set(pairs) == {"result", "jvp", "vjp"}
        for which, (ours, theirs) in pairs.items():
            for a, b in zip(ours, theirs, strict=True):
                assert_close(a, b, 2e-3, which)
