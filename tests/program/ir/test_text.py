import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import MeshwrightError
from meshwright.program.capture import capture
from meshwright.program.ir import (
    Op,
    Program,
    Value,
    show_program,
)
from meshwright.program.ir.program import Opaque, show_param, split_top
from tests.program.ir.parser import parse_program
from tests.program.ir.programs import CASES
from tests.program.ir.verifier import verify
from tests.program.ops.test_numbers import all_examples, captured


def assert_reads_back(program: Program) -> None:
    text = show_program(program)
    read = parse_program(text)
    verify(read)
    assert show_program(read) == text
    assert text.isprintable() or "\n" in text
    assert " at 0x" not in text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_printed_programs_parse(case):
    assert_reads_back(capture(case.fn, case.args).program)


@given(st.sampled_from(all_examples()))
def test_printed_programs_of_every_op_parse(example):
    assert_reads_back(captured(example).program)


def test_the_text_names_types_operands_parameters_and_bodies():
    case = next(case for case in CASES if case.name == "scan")
    text = str(capture(case.fn, case.args).program)
    assert re.search(r"%\d+: f32\[8, 6\], %\d+: f32\[3, 8\] = scan %", text)
    assert "{length=3, reverse=False, unroll=1} wires [0|0.0|-|-, " in text
    assert re.search(
        r"^    body\(%\d+: f32\[6, 6\], ", text.replace("      ", "    "), re.M
    )
    assert re.search(r"^ +return %\d+, %\d+$", text, re.M)


def test_effects_constants_and_literals_are_marked():
    texts = {c.name: str(capture(c.fn, c.args).program) for c in CASES}
    assert "debug_print! %" in texts["effect"] or "debug_callback! %" in texts["effect"]
    assert re.search(r"^  constant %\d+: f32\[", texts["matmul"], re.M)
    assert "return %0, %0, 3.0:f32, nan:f32, " in texts["odd ends"]
    assert texts["nothing"] == "program() {\n  return\n}"
    assert "%0: key<fry>[]" in texts["keys"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ((1,), "(1,)"),
        ([1, (2, "a")], "[1, (2, 'a')]"),
        ({"b": 1}, "{'b': 1}"),
        (frozenset({3, 1, 2}), "{1, 2, 3}"),
        (len, "<len>"),
        (lambda: 0, "<lambda>"),
        (object(), "<object>"),
        ("un(balanced", "'un(balanced'"),
        (Opaque("as it is"), "as it is"),
    ],
)
def test_parameters_are_short_and_stable(value, text):
    assert show_param(value) == text
    assert split_top(f"{text}, {text}") == [text, text]


def test_a_parameter_that_would_not_parse_prints_as_its_class():
    class Odd:
        def __repr__(self):
            return "odd(("

    assert show_param(Odd()) == "<Odd>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read program text at the end"),
        ("program(%0: f32[2]) {\n  return %1\n}", "'return %1'"),
        ("program(%0: f32[2], %0: f32[2]) {\n  return\n}", "%0 is named twice"),
        ("program(%0) {\n  return\n}", "'%0' is no '%n: type[shape]'"),
        ("program() {\n  return\n}\nmore", "nothing may follow the program"),
        ("program() {\n  return\n", "cannot read program text"),
        ("program() {\n  %0 f32 = add\n  return\n}", "is no '%n: type[shape]'"),
    ],
)
def test_text_that_is_not_a_program_is_refused_with_its_line(text, words):
    with pytest.raises(MeshwrightError, match=re.escape(words)):
        parse_program(text)


def test_a_program_prints_itself():
    x, y = Value((2, 3), "bfloat16"), Value((2, 3), "bfloat16")
    op = Op("all_reduce", (x,), (y,), {"axes": ("B",), "reason": "long"})
    text = "program(%0: bf16[2, 3]) {\n  %1: bf16[2, 3] = all_reduce %0 {axes=('B',)}\n"
    assert str(Program((x,), (op,), (y,))) == f"{text}  return %1\n}}"
