"""Dataclasses with the fast constructor are frozen once they are constructed."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from meshwright.program.ir import Op, Value
from meshwright.program.records import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class Made:
    """Two fields and a default."""

    name: str
    sizes: tuple[int, ...]
    weight: float = 1.5


def test_fields_are_set_by_position_by_name_and_by_default():
    made = Made("a", sizes=(2, 3))
    assert (made.name, made.sizes, made.weight) == ("a", (2, 3), 1.5)
    assert str(made) == "Made(name='a', sizes=(2, 3), weight=1.5)"
    assert type(made) is Made


def test_a_record_cannot_be_changed():
    made = Made("a", ())
    with pytest.raises(FrozenInstanceError):
        made.name = "b"
    with pytest.raises(FrozenInstanceError):
        Value((2,), "float32").dtype = "int32"
    assert not hasattr(made, "__dict__")


def test_a_missing_field_is_an_error():
    with pytest.raises(TypeError, match="sizes"):
        Made("a")


def test_records_compare_copy_pickle_and_replace_like_dataclasses():
    made = Made("a", (2,), 0.5)
    assert made == Made("a", (2,), 0.5) != Made("a", (2,))
    assert len({made, copy.copy(made), pickle.loads(pickle.dumps(made))}) == 1
    assert replace(made, name="b") == Made("b", (2,), 0.5)


def test_ops_compare_by_identity():
    op = Op("exp", (Value((2,), "float32"),), (Value((2,), "float32"),))
    assert op != replace(op)
    assert replace(op, kind="log").operands is op.operands


def test_fields_and_methods_that_would_be_ignored_are_refused():
    @dataclass(frozen=True, slots=True)
    class Checked:
        size: int

        def __post_init__(self):
            raise ValueError

    @dataclass(frozen=True, slots=True)
    class Filled:
        parts: list[int] = field(default_factory=list)

    for record in (Checked, Filled):
        with pytest.raises(AssertionError):
            fast_frozen(record)
