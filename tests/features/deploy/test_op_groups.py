"""Every group of ops on every target, called with edge values.

The results are JAX's, or the target refuses the group with its line, or the record names
the ops that differ for NaN or extreme values.
"""

import jax
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import DeployError
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
    model = load_deployed(tmp_path / "out")
    names = [port["name"] for port in model.about["inputs"]]
    limit = LARGEST_ERRORS.get(NARROW.get(name, ""), 1e-4)
    for call in group.calls:
        found = model(**dict(zip(names, jax.tree.leaves(call), strict=True)))
        wanted = jax.tree.leaves(jax.jit(group.fn)(*call))
        pairs = [
            (a, np.asarray(b)) for a, b in zip(found.values(), wanted, strict=True)
        ]
        if loses_only_nans(record):  # one NaN may change the order of all elements
            if any(has_nan(leaf) for leaf in jax.tree.leaves(call)):
                continue
            pairs = [where_no_nan(*pair) for pair in pairs]
        errors = [largest_error(*pair) for pair in pairs]
        is_named = record.differences and not loses_only_nans(record)
        assert max(errors) <= limit or is_named or record.note, errors


def loses_only_nans(record):
    """Whether the ops that a record names differ for NaN alone."""
    named = record.differences
    return bool(named) and all(each.startswith("NaN may be lost:") for each in named)


def has_nan(leaf):
    array = np.asarray(leaf)
    return np.issubdtype(array.dtype, np.inexact) and bool(np.isnan(array).any())


def where_no_nan(found, wanted):
    """The elements of two arrays where JAX has a number."""
    if not np.issubdtype(wanted.dtype, np.inexact):
        return np.asarray(found), wanted
    is_number = ~np.isnan(wanted)
    return np.asarray(found)[is_number], wanted[is_number]


@pytest.mark.parametrize("target", REFUSED)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_every_style_are_deployed(name, target, tmp_path):
    fn, args = MODELS[name]()
    if (name, target) in HARD:
        pytest.skip(HARD[name, target])
    record = mw.deploy(fn, args, to=target, out=tmp_path / "out")
    limit = 0.02 if "bfloat16" in name else 1e-4
    assert record.error is not None
    assert record.error < limit


HARD = {
    ("linen separable", "litert"): "litert-converter makes a product of wrong rank",
    **{
        ("equinox mixture", target): "IREE 3.13 does not end within two minutes"
        for target in ("iree-cpu", "wasm")
    },
}
"""Models that a target refuses, with the reason."""


def test_the_record_names_dtypes_and_values_that_differ(tmp_path):
    fn, args = MODELS["linen bfloat16 encoder"]()
    record = mw.deploy(fn, args, to="litert", out=tmp_path / "out")
    assert "bfloat16 is computed in float32" in str(record)
    assert any(
        "NaN may be lost" in line and "`exp` at" in line for line in record.differences
    )
    assert "NaN may be lost" in (tmp_path / "out" / "README.md").read_text()
