"""Records that are open while they are made are frozen ever after."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from meshwright.program.ir import Op, Value
from meshwright.program.records.fast_frozen import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class Made:
    """Two fields and a default."""

    name: str
    sizes: tuple[int, ...]
    weight: float = 1.5


def test_fields_are_set_by_place_by_name_and_by_default():
    made = Made("a", sizes=(2, 3))
    assert (made.name, made.sizes, made.weight) == ("a", (2, 3), 1.5)
    assert str(made) == "Made(name='a', sizes=(2, 3), weight=1.5)"
    assert type(made) is Made


def test_nothing_is_set_once_a_record_is_made():
    made = Made("a", ())
    with pytest.raises(FrozenInstanceError):
        made.name = "b"
    with pytest.raises(FrozenInstanceError):
        Value((2,), "float32").dtype = "int32"
    assert not hasattr(made, "__dict__")


def test_a_missing_field_is_an_error():
    with pytest.raises(TypeError, match="sizes"):
        Made("a")


def test_records_are_equal_copied_stored_and_replaced_as_ever():
    made = Made("a", (2,), 0.5)
    assert made == Made("a", (2,), 0.5) != Made("a", (2,))
    assert len({made, copy.copy(made), pickle.loads(pickle.dumps(made))}) == 1
    assert replace(made, name="b") == Made("b", (2,), 0.5)


def test_ops_are_themselves_alone():
    op = Op("exp", (Value((2,), "float32"),), (Value((2,), "float32"),))
    assert op != replace(op)
    assert replace(op, kind="log").operands is op.operands


def test_what_would_be_passed_over_is_refused():
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
