"""ONNX models have one node for a group of ops that ONNX has one op for."""

from importlib import import_module

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from tests.features.deploy.programs import normal

pytestmark = pytest.mark.deploy

X = normal(2, 5, 8)
IMAGE, KERNEL = normal(1, 6, 6, 3), normal(3, 3, 3, 4)
SCALE, ROW, TABLE = normal(8), normal(4), normal(3, 8)


def plain_norm(x):
    gap = x - x.mean(-1, keepdims=True)
    return gap * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * SCALE + SCALE


def linen_norm(x):
    return nn.LayerNorm().apply({"params": {"scale": SCALE, "bias": SCALE}}, x)


def attention(x):
    q, k = x.reshape(2, 5, 2, 4), (x * 2).reshape(2, 5, 2, 4)
    return jax.nn.dot_product_attention(q, k, q)


def convolution(x):
    dims = ("NHWC", "HWIO", "NHWC")
    made = lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=dims)
    return jax.nn.relu(made + ROW)


def transposed(x):
    return lax.conv_transpose(x, KERNEL, (2, 2), "SAME") + ROW


def keeps_parts(x):
    """A softmax whose exponentials are results, too, is no Softmax."""
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True), powers


CASES = {
    "softmax": (jax.nn.softmax, X, {"Softmax"}),
    "vmapped softmax": (jax.vmap(jax.nn.softmax, 1, 1), X, {"Softmax", "Transpose"}),
    "log softmax": (jax.nn.log_softmax, X, {"LogSoftmax"}),
    "gelu": (jax.nn.gelu, X, {"Gelu"}),
    "exact gelu": (lambda x: jax.nn.gelu(x, approximate=False), X, {"Gelu"}),
    "hard swish": (jax.nn.hard_swish, X, {"HardSigmoid", "Mul"}),
    "plain norm": (plain_norm, X, {"LayerNormalization"}),
    "linen norm": (linen_norm, X, {"LayerNormalization"}),
    "relu6": (jax.nn.relu6, X, {"Clip"}),
    "mean": (lambda x: x.mean(1, keepdims=True), X, {"ReduceMean"}),
    "swapped product": (lambda x: (TABLE @ x.T).T, X[0], {"MatMul"}),
    "convolution": (convolution, IMAGE, {"Conv", "Relu", "Transpose"}),
    "transposed": (transposed, IMAGE, {"ConvTranspose", "Transpose"}),
    "attention": (attention, X, {"Mul", "MatMul", "Reshape", "Softmax", "Transpose"}),
}


def kinds_of(fn, x, folder):
    record = mw.deploy(fn, (x,), to="onnx", out=folder)
    assert record.error is not None
    assert record.error < 2e-6
    graph = import_module("onnx").load(folder / "model.onnx").graph
    return {node.op_type for node in graph.node} - {"Identity"}


@pytest.mark.parametrize("name", CASES)
def test_a_group_of_ops_is_one_node(name, tmp_path):
    fn, x, kinds = CASES[name]
    assert kinds_of(fn, x, tmp_path / "out") <= kinds | {"Slice", "Reshape"}


def test_a_group_whose_inner_values_are_read_stays(tmp_path):
    assert "Softmax" not in kinds_of(keeps_parts, X, tmp_path / "out")


def test_a_number_that_is_not_the_definition_s_is_no_gelu(tmp_path):
    def other(x):
        return x * (0.5 * (1 + jnp.tanh(0.8 * (x + 0.044715 * x**3))))

    assert "Gelu" not in kinds_of(other, X, tmp_path / "out")
