"""Leaves of every kind come back as they were, or are refused when they are saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import CheckpointError
from meshwright.run.local.layer_stack import LayerStack
from tests.features.checkpoint.states import bits

EVERY_DTYPE = [
    "int2",
    "int4",
    "uint2",
    "uint4",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "uint32",
    "bool",
    "float16",
    "bfloat16",
    "complex64",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]

STATE = {
    "of_jax": {name: jnp.arange(4).astype(name) for name in EVERY_DTYPE},
    "of_numpy": {
        "count": np.int64(2**40 + 5),
        "share": np.float64(0.1),
        "far": np.array([2**40, -(2**62)]),
        "unsigned": np.array([2**63 + 1], np.uint64),
        "fine": np.array([1 + 1e-12j]),
        "turned": np.arange(6, dtype=">i8").reshape(2, 3).T,
        "narrow": np.arange(4).astype(jnp.uint4),
        "none": np.zeros((0, 3)),
    },
    "of_python": {"int": 2**40, "float": 1e300, "complex": 1e-300j, "bool": True},
    "keys": [jax.random.key(1), jax.random.split(jax.random.key(2, impl="rbg"), 3)],
    "empty": [jnp.zeros((0,)), jnp.zeros((3, 0), jnp.bfloat16), None, (), {}],
    "numbered": {1: jnp.ones(1), 10: jnp.ones(2), 2: jnp.ones(3)},
    "names": {"a.b": jnp.ones(2), "a/c": jnp.ones(3), "λ\n": jnp.ones(4), "": 1.5},
    "nan": jnp.array([jnp.nan, -0.0, jnp.inf]),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("leaves")
    with mw.Checkpoints(directory) as checkpoints:
        checkpoints.save(1, STATE)
    return mw.Checkpoints(directory, read_only=True)


def test_leaves_of_every_kind_come_back_as_they_were(saved):
    restored = saved.restore(STATE).state
    assert jax.tree.structure(restored) == jax.tree.structure(STATE)
    pairs = zip(jax.tree.leaves(restored), jax.tree.leaves(STATE), strict=True)
    for got, want in pairs:
        if type(want) in (bool, int, float, complex):
            assert (got, type(got)) == (want, type(want))
        elif jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            assert (got.dtype, bits(got)) == (want.dtype, bits(want))
        else:
            native = np.ascontiguousarray(want, want.dtype.newbyteorder("="))
            assert got.dtype == native.dtype
            assert got.shape == want.shape
            assert bits(got) == bits(native)


def test_values_that_jax_cannot_hold_are_not_cut_to_its_dtypes(saved):
    of_numpy = STATE["of_numpy"]

    def restore(part, name):
        like = {part: {name: jax.ShapeDtypeStruct((), jnp.int32)}}
        return saved.restore(like, partial=True).state[part][name]

    with pytest.raises(CheckpointError, match=r"count has values of int64 that int32"):
        restore("of_numpy", "count")
    like = {"of_numpy": {"share": jnp.zeros(())}, "of_python": {"float": 0.0}}
    state = saved.restore(like, partial=True).state
    assert state["of_numpy"]["share"] == jnp.float32(of_numpy["share"])
    assert state["of_python"]["float"] == 1e300
    like = {"of_python": {"float": jnp.zeros(())}}
    with pytest.raises(
        CheckpointError, match=r"float has values of float64 that float32"
    ):
        saved.restore(like, partial=True)


def test_arrays_of_numpy_may_change_after_they_are_saved(tmp_path):
    x = np.arange(1 << 20)
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": x})
        x[:] = 7
        checkpoints.wait()
        restored = checkpoints.restore({"x": x}).state["x"]
    np.testing.assert_array_equal(restored, np.arange(1 << 20))


def test_a_state_of_empty_arrays_alone_is_a_state(tmp_path):
    state = [jnp.zeros((0, 2))]
    with mw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.wait()
        assert checkpoints.restore(state).state[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"a.b": 1.0, "a": {"b": 2.0}}, r"\['a'\]\['b'\] and \['a\.b'\] of the state"),
        ({"a.b": 1.0, "a/b": 2.0}, r"\['a\.b'\] and \['a/b'\] of the state would both"),
        ({"x": "text"}, "x is 'text'; wanted arrays, in any pytree: give texts"),
        ({"x": np.array(["text"])}, "x has the dtype <U4, which TensorStore cannot"),
        ({"x": np.array([{}])}, "x has the dtype object"),
        ({"x": np.array(["2026"], "M8[D]")}, r"x has the dtype datetime64\[D\]"),
        ({"x": jnp.ones(2, jnp.float8_e4m3)}, "x has the dtype float8_e4m3"),
    ],
)
def test_what_could_not_be_restored_is_refused_at_save(state, words, tmp_path, capfd):
    with (
        mw.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(CheckpointError, match=words),
    ):
        checkpoints.save(1, state)
    assert checkpoints.steps == ()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("position", [np.int64(3), object(), {"epoch": jnp.int32(1)}])
def test_a_position_that_is_no_json_is_refused_when_it_is_given(position, tmp_path):
    with mw.Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match=r"position is .*, not a JSON value"):
            checkpoints.save(1, {"x": 1.0}, position=position)
        checkpoints.save(2, {"x": 1.0}, position=3)
        checkpoints.wait()
        assert checkpoints.steps == (2,)


def test_layers_on_several_stages_are_saved_as_one_array(tmp_path):
    whole = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    elements = [jnp.asarray(whole[i : i + 1]) for i in range(3)]
    with mw.Checkpoints(tmp_path) as store:
        store.save(1, {"w": LayerStack(elements)})
    with mw.Checkpoints(tmp_path) as store:
        restored = store.restore({"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)})
    np.testing.assert_array_equal(restored.state["w"], whole)
