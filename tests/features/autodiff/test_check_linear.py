"""The checker of linear programs, on programs written by hand."""

import textwrap

import pytest

from meshwright.errors import AutodiffError
from meshwright.features.autodiff.check_linear import check_linear
from meshwright.features.autodiff.typing import LinearProgram
from tests.program.ir.parser import parse_linear


def read(text: str) -> LinearProgram:
    return LinearProgram(*parse_linear(textwrap.dedent(text).strip()))


LINEAR = """
program(%0: f32[3], @1: f32[3]) {
  @2: f32[3], @3: f32[3] = dup @1
  @4: f32[3] = mul @2, %0
  @5: f32[3] = add_any @4, @3
  @6: f32[3] = zero
  drop @6
  @7: f32[3], @8: f32[5, 3] = scan @5 {length=5} wires [0|0.0|0.0|0, -|-|0.1|1*] {
    body(@9: f32[3]) {
      @10: f32[3], @11: f32[3] = dup @9
      return @10, @11
    }
  }
  drop @8
  return @7
}
"""


def test_a_linear_program_is_accepted_and_prints_as_it_was_written():
    checked = check_linear(read(LINEAR))
    assert str(checked) == LINEAR.strip()


def body(lines: str, result: str = "@9") -> str:
    """A program from a linear %1 and others to `result`; its ops begin in line 2."""
    rows = textwrap.indent(textwrap.dedent(lines).strip(), "  ")
    head = "program(%0: f32[3], %8: i32[], %7: bool[3], @1: f32[3], @2: f32[3]) {"
    return f"{head}\n{rows}\n  return {result}\n}}"


NOT_LINEAR = {
    "used twice by one op": (
        body("@9: f32[3] = add_any @1, @1\ndrop @2"),
        "@3 is used a second time: make two of it by dup, in line 2: @5: f32[3] = add_any",
    ),
    "used twice by two ops": (
        body(
            "@3: f32[3] = neg @1\n@4: f32[3] = neg @1\n@9: f32[3] = add_any @3, @4\ndrop @2"
        ),
        "@3 is used a second time: make two of it by dup, in line 3",
    ),
    "never used": (
        body("@9: f32[3] = neg @1"),
        "@4 is never used: consume it by drop, in line 1",
    ),
    "result never used": (
        body("@3: f32[3] = neg @2\n@9: f32[3] = neg @1"),
        "@5 is never used: consume it by drop, in line 2: @5: f32[3] = neg @4",
    ),
    "returned twice": (
        body("drop @2\n@9: f32[3] = neg @1", "@9, @9"),
        "@5 is used a second time: make two of it by dup",
    ),
    "used after drop": (
        body("drop @1\n@9: f32[3] = add_any @1, @2"),
        "@3 is used a second time: make two of it by dup, in line 3",
    ),
    "a product of two": (
        body("@9: f32[3] = mul @1, @2"),
        "@3 is one of @3, @4, and mul is linear in one operand only, in line 2",
    ),
    "a nonlinear function": (
        body("@9: f32[3] = sin @1\ndrop @2"),
        "@3 is an operand in which sin is not linear, in line 2: @5: f32[3] = sin @3",
    ),
    "an affine sum": (
        body("@9: f32[3] = add_any @1, %0\ndrop @2"),
        "@3 meets an operand of add_any that is not linear: their sum is affine",
    ),
    "a divisor": (
        body("@9: f32[3] = div %0, @1\ndrop @2"),
        "@3 is an operand in which div is not linear, in line 2",
    ),
    "a selection with a constant": (
        body("@9: f32[3] = select_n %7, @1, %0\ndrop @2"),
        "@3 meets an operand of select_n that is not linear: their sum is affine",
    ),
    "a selector": (
        body("%3: bool[3] = gt @1, %0\n@9: f32[3] = neg @2"),
        "@3 is an operand in which gt is not linear, in line 2: %5: bool[3] = gt @3, %0",
    ),
    "a result that is not marked": (
        body("%3: f32[3] = neg @1\n@9: f32[3] = neg @2"),
        "%5 is not linear, but depends on @3, in line 2",
    ),
    "a linear result from nothing": (
        body("drop @1\n@3: f32[3] = sin %0\n@9: f32[3] = add_any @3, @2"),
        "@5 is linear, but no operand of sin is, in line 3",
    ),
    "an integer": (
        "program(@0: i32[3]) {\n  @1: i32[3] = neg @0\n  return @1\n}",
        "@0 is int32; only floats and complex numbers can be linear, in line 1",
    ),
    "a dup of other shapes": (
        body("drop @2\n@3: f32[2], @4: f32[3] = dup @1\ndrop @3\n@9: f32[3] = neg @4"),
        "@3 is in a malformed dup, which takes 1 and makes 2, all of one type, in line 3",
    ),
    "a constant": (
        "program(@0: f32[3]) {\n  constant @1: f32[3]\n  @2: f32[3] = add_any @0, @1\n"
        "  return @2\n}",
        "@1 is a constant, and so cannot be linear, in line 2",
    ),
    "a constant of a loop": (
        body("""
            drop @2
            @9: f32[4, 3] = scan @1 {length=4} wires [0|0.0|-|-, -|-|0.0|0*] {
              body(@5: f32[3]) {
                return @5
              }
            }
        """),
        "@3 is used in each iteration of scan: carry it, and dup it there, in line 3",
    ),
    "a wire with mixed ends": (
        body("""
            drop @2
            @9: f32[3] = scan @1 {length=4} wires [0|0.0|0.0|0] {
              body(@5: f32[3]) {
                drop @5
                %6: f32[3] = broadcast_in_dim 0.0:f32
                return %6
              }
            }
        """),
        "@3 is linear, but %7 on the same wire of scan is not, in line 3",
    ),
    "a branch that does not use it": (
        body("""
            drop @2
            @9: f32[3] = cond %8, @1 wires [0|-|-|-, 1|0.0+1.0|-|-, -|-|0.0+1.0|0] {
              body(@5: f32[3]) {
                return @5
              }
              body(@6: f32[3]) {
                @10: f32[3] = zero
                return @10
              }
            }
        """),
        "@7 is never used: consume it by drop, in line 7: body(@7: f32[3])",
    ),
    "a branch to choose": (
        "program(@0: f32[], @1: f32[3]) {\n"
        "  @2: f32[3] = cond @0, @1 wires [0|-|-|-, 1|0.0|-|-, -|-|0.0|0] {\n"
        "    body(@3: f32[3]) {\n      return @3\n    }\n  }\n  return @2\n}",
        "@0 decides what cond does, which is not linear, in line 2",
    ),
    "a condition of a loop": (
        body("""
            drop @2
            @9: f32[3] = while @1 wires [0|0.0+1.0|1.0|0, -|-|0.0|-] {
              body(@5: f32[3]) {
                %6: bool[] = is_finite @5
                return %6
              }
              body(@10: f32[3]) {
                return @10
              }
            }
        """),
        "@3 is read by the condition of a while loop, in line 3",
    ),
}


@pytest.mark.parametrize("case", NOT_LINEAR)
def test_a_program_that_is_not_linear_is_rejected_with_variable_and_line(case):
    text, wanted = NOT_LINEAR[case]
    with pytest.raises(AutodiffError) as caught:
        check_linear(read(text))
    assert wanted in str(caught.value)
    assert ", in line " in str(caught.value)
