"""Every group of ops on every target, called with edge values.

The results are JAX's, or the target refuses the group with its line, or the record names
the ops that differ for NaN or extreme values.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError
from meshwright.features.deploy.targets import TARGETS
from meshwright.features.deploy.write_deployment import (
    LARGEST_ERRORS,
    largest_error,
    load_deployed,
)
from tests.features.deploy.models import MODELS
from tests.features.deploy.op_groups import GROUPS

pytestmark = pytest.mark.deploy

REFUSED = {
    "onnx": {"sign bits": "bitcast_convert_type", "random": "random_"},
    "litert": {
        "unsigned": "div", "random": "random_bits", "loops": "while",
    },
    "iree-cpu": {},
    "wasm": {},
}  # fmt: skip
"""The op that a target's refusal names, by group."""

NARROW = {"half precision": "float16", "bfloat16": "bfloat16"}


@pytest.mark.parametrize("target", REFUSED)
@pytest.mark.parametrize("name", GROUPS)
def test_edge_values_at_the_call_give_what_jax_gives(name, target, tmp_path):
    group = GROUPS[name]
    if name in REFUSED[target]:
        line = rf"`?{REFUSED[target][name]}.*op_\w+\.py:"
        with pytest.raises(DeployError, match=line):
            mw.deploy(group.fn, group.sample, to=target, out=tmp_path / "out")
        return
    record = mw.deploy(group.fn, group.sample, to=target, out=tmp_path / "out")
    limit = LARGEST_ERRORS.get(NARROW.get(name, ""), 1e-4)
    for call in group.calls:
        for found, wanted in results_of(tmp_path / "out", group.fn, call):
            is_named = named_elements(record, call, found, wanted)
            error = largest_error(found[~is_named], wanted[~is_named])
            assert error <= limit, (found, wanted, record.differences)


def results_of(folder, fn, call):
    """Pairs of the deployed model's results and of JAX's."""
    model = load_deployed(folder)
    names = [port["name"] for port in model.about["inputs"]]
    found = model(**dict(zip(names, jax.tree.leaves(call), strict=True)))
    wanted = jax.tree.leaves(jax.jit(fn)(*call))
    return [
        (np.asarray(a), np.asarray(b))
        for a, b in zip(found.values(), wanted, strict=True)
    ]


def named_elements(record, call, found, wanted):
    """Where results may differ, by what the record names."""
    texts = [each.split(":")[0] for each in record.differences]
    is_named = np.zeros(wanted.shape, bool)
    if "float16 is computed in float32" in record.note:
        is_named |= np.isinf(wanted) & (np.abs(found) > np.finfo(np.float16).max)
    for text in texts:
        if text == LOST_NAN:
            is_named |= np.isnan(wanted)
            continue
        start, is_so = BEYOND[text]
        for leaf in jax.tree.leaves(call):
            if leaf.shape == wanted.shape:
                beyond = leaf < start if start < 0 else np.abs(leaf) > start
                is_named |= beyond & is_so(found)
    return is_named


LOST_NAN = "NaN in a window may be lost"
BEYOND = {
    "NaN beyond 1e26 on some CPUs": (1e26, np.isnan),
    "infinite beyond 1e38": (1e38, np.isinf),
    "inexact beyond 8e37": (8e37, np.isfinite),
    "another number beyond 1e5": (1e5, np.isfinite),
    "another number beyond 1e7": (1e7, np.isreal),
    "0 below -18": (-18, lambda found: found == 0),
    "0 beyond 4": (4, lambda found: found == 0),
    "NaN of negative sign counts as the largest": (np.inf, np.isnan),
    "inexact near integers below 1": (0, np.isfinite),
}
"""By text of a record: from which input on results may differ, and what they then are."""


def largest_of_pairs(x):
    return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2,), (2,), "VALID")


def smallest_of_pairs(x):
    return jax.lax.reduce_window(x, np.inf, jax.lax.min, (2,), (2,), "VALID")


BY_KIND = {
    "reduce_window_max": largest_of_pairs,
    "reduce_window_min": smallest_of_pairs,
    "acosh": jnp.arccosh,
    "asinh": jnp.arcsinh,
    "pow": lambda x: x**0.5,
    "top_k": lambda x: jax.lax.top_k(-x, 3)[0],
}


@pytest.mark.parametrize("target", REFUSED)
def test_each_difference_that_a_record_names_is_there(target, tmp_path):
    kinds = TARGETS[target].differences

    def fn(x):
        return [BY_KIND.get(kind, getattr(jax.lax, kind, None))(x) for kind in kinds]

    x = np.float32([3e38, -1e-6, 1e8, 1e30, np.nan, 1, -30, 7])
    record = mw.deploy(fn, (np.full_like(x, 2),), to=target, out=tmp_path / "out")
    assert sorted({each.split(":")[0] for each in record.differences}) == sorted(
        {*kinds.values()}
    )
    for kind, (found, wanted) in zip(
        kinds, results_of(tmp_path / "out", fn, (x,)), strict=True
    ):
        is_near = np.isclose(found, wanted, rtol=1e-4, atol=0, equal_nan=True)
        assert not is_near.all() or kinds[kind].endswith("on some CPUs"), kind


FUNCTIONS = (
    *(jnp.exp, jnp.exp2, jnp.expm1, jnp.log, jnp.log1p, jnp.log2, jnp.log10, jnp.sqrt),
    *(jnp.cbrt, jnp.square, jnp.reciprocal, jax.lax.rsqrt, jnp.sin, jnp.cos, jnp.tan),
    *(jnp.arcsin, jnp.arccos, jnp.arctan, jnp.sinh, jnp.cosh, jnp.tanh, jnp.arcsinh),
    *(jnp.arctanh, jnp.arccosh, jax.nn.gelu, jax.nn.softplus, jax.nn.elu, jnp.sinc),
    *(jax.nn.log_sigmoid, jax.nn.mish, jax.nn.selu, jax.scipy.special.erf),
    *(jax.scipy.special.erfinv, lambda x: jnp.abs(x) ** 0.7, lambda x: x**3),
)
NUMBERS = [
    np.float32([1e-6, -1e-6, 1e-3, -1e-3, 3e-5, 1e-10, -1e-20, 1e-30]),
    np.float32([0.2, 0.3, -0.3, -0.2, 0.6, -0.6, 0.9, -0.9]),
    np.float32([1.5, -1.5, 3, -3, 7, -7, 12, -12]),
    np.float32([30, -30, 60, -60, 85, -85, 88.9, -100]),
    np.float32([1e4, -1e4, 3e4, 7e4, -1e5, 1e3, 99999, -1e3]),
    np.float32([1e15, -1e15, 1e19, -1e19, 1e30, -1e30, 3e38, -3e38]),
]


@pytest.mark.parametrize("target", REFUSED)
def test_functions_are_exact_for_small_and_large_numbers(target, tmp_path):
    def fn(x):
        return [each(x) for each in FUNCTIONS]

    record = mw.deploy(fn, (NUMBERS[1],), to=target, out=tmp_path / "out")
    for x in NUMBERS:
        least = 2e-38 if np.abs(x).max() < 0.01 else 1e-6
        pairs = results_of(tmp_path / "out", fn, (x,))
        for number, (found, wanted) in enumerate(pairs):
            near = np.isclose(found, wanted, rtol=1e-4, atol=least, equal_nan=True)
            near |= named_elements(record, (x,), found, wanted)
            assert near.all(), (FUNCTIONS[number], x, found, wanted)


@pytest.mark.parametrize("target", REFUSED)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_every_style_are_deployed(name, target, tmp_path):
    fn, args = MODELS[name]()
    record = mw.deploy(fn, args, to=target, out=tmp_path / "out")
    limit = 0.02 if "bfloat16" in name else 1e-4
    assert record.error is not None
    assert record.error < limit


def test_the_record_names_no_difference_of_an_op_of_constants(tmp_path):
    def windowed(params, x):
        return x * jnp.hanning(16) @ params

    args = np.ones((16, 2), np.float32), np.ones((1, 16), np.float32)
    record = mw.deploy(windowed, args, to="litert", out=tmp_path / "out")
    assert record.differences == ()


def test_a_model_of_which_nothing_can_be_int8_is_refused(tmp_path):
    args = np.ones(3, np.float32), np.ones(3, np.float32)
    with pytest.raises(DeployError, match="neither a product nor a convolution"):
        mw.deploy(
            lambda params, x: params + x,
            args,
            to="onnx",
            out=tmp_path / "out",
            quantize="int8",
            calibration=[{"x": args[1]}],
        )


def test_bfloat16_inputs_reach_a_runtime_that_has_them(tmp_path):
    def doubled(params, x):
        return x * params

    args = np.array([2, 3], jnp.bfloat16), np.array([1, np.inf], jnp.bfloat16)
    record = mw.deploy(doubled, args, to="iree-cpu", out=tmp_path / "out")
    assert record.error == 0
    loaded = load_deployed(tmp_path / "out")
    found = loaded(x=np.array([0.1, np.nan]))["out"]
    assert found.dtype == jnp.bfloat16
    assert float(found[0]) == float(args[0][0] * jnp.bfloat16(0.1))
    assert np.isnan(float(found[1]))


def test_the_record_names_dtypes_and_values_that_differ(tmp_path):
    fn, args = MODELS["bfloat16"]()

    def gated(params, x):
        return jax.nn.sigmoid(fn(params, x))

    record = mw.deploy(gated, args, to="litert", out=tmp_path / "out")
    assert "bfloat16 is computed in float32" in str(record)
    (line,) = record.differences
    assert re.fullmatch(
        r"NaN beyond 1e26 on some CPUs: `logistic` at .*test_op_groups\.py:\d+", line
    )
    assert line in (tmp_path / "out" / "README.md").read_text()
