"""Micro-operations of functions, and one assembler text from the functions of two."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.registers.assembler import mixed_text
from meshwright.features.policies.compiler.registers.operations import (
    counted_operations,
    operation_flags,
)
from tests.features.policies.compiler.programs import pressed_program

LOOP = """
int total(int *p) {
  int sum = 1;
#pragma clang loop vectorize(disable) unroll(disable)
  for (long i = 0; i < 1000; i++) { sum ^= p[i]; p[i] += 3; }
  return sum;
}
"""

JUMPS = """
int run(unsigned char *c, int *p) {
  static const void *to[] = {&&add, &&sub, &&mul, &&end};
  int a = p[0], b = p[1], d = p[2], e = p[3], f = p[4], g = p[5], h = p[6], i = p[7];
  int j = p[8], k = p[9], l = p[10], m = p[11], n = p[12], o = p[13], q = p[14];
  goto *to[*c++];
add: a += b * c[0]; d ^= e; f += g; h -= i; j ^= k + l; m += n; o ^= q; goto *to[*c++];
sub: b -= d + c[1]; e ^= f; g += h; i -= j; k ^= l + m; n += o; q ^= a; goto *to[*c++];
mul: d *= e; f ^= g * h; i += j; k -= l; m ^= n + o; q += a; b ^= d; goto *to[*c++];
end: return a ^ b ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ m ^ n ^ o ^ q;
}
"""

ASSEMBLE = ["-x", "assembler", "-Xclangas", "-target-cpu", "-Xclangas", "generic"]


def text_of(cc: ClangCompiler, source: Path, flags: Sequence[str] = ()) -> str:
    out = source.with_suffix(".s")
    command = [*cc.clang.command, "-O2", *operation_flags(), *flags, str(source)]
    subprocess.run([*command, "-o", str(out)], check=True)
    return out.read_text()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_operations_of_a_loop_count_as_often_as_it_runs(
    cc: ClangCompiler, tmp_path: Path, machine: str
) -> None:
    """The compiler guesses that a loop runs 32 times; an iteration has 8 operations."""
    source = tmp_path / "f.c"
    source.write_text(LOOP)
    text = text_of(cc, source, [f"--target={machine}-linux-gnu"])
    found = counted_operations(text)["total"]
    assert 32 * 7 <= sum(found) <= 32 * 9.5
    assert 32 <= found.stores < 33.5
    assert 32 <= found.loads <= 2 * 33


def test_a_copy_and_a_memory_access_cost_what_is_said() -> None:
    lines = ["movl\t%eax, %ecx", "movl\t(%rdi), %eax", "addl\t$1, 8(%rdi,%rax,4)"]
    lines += ["pushq\t%rbp", "popq\t%rbp", "leaq\t8(%rdi), %rax", "cmpl\t$1, (%rdi)"]
    lines += ["movups\t%xmm0, 8(%rdi)", "callq\t*(%rax)", "addps\t(%rdi), %xmm1"]
    costs = [
        (1, 0, 0),
        (1, 1, 0),
        (1, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
        (1, 0, 0),
        (1, 1, 0),
    ]
    costs += [(1, 0, 1), (1, 1, 1), (1, 1, 0)]
    for line, cost in zip(lines, costs, strict=True):
        text = (
            f"f:      # @f\n# %bb.0:\n\t{line}\n.LBB0_1:  # in a loop\n\t{line}\n"
            "\t.section\t.llvm_bb_addr_map\n\t.byte\t2  # number of basic blocks\n"
            '\t.ascii\t"\\200\\001"  # basic block frequency\n'
            "\t.uleb128 1280 # basic block frequency\n\t.text\n"
        )
        assert counted_operations(text) == {"f": tuple(11 * each for each in cost)}
    with pytest.raises(ValueError, match="does not tell how often the blocks"):
        counted_operations("f:  # @f\n# %bb.0:\n\tretq\n")
    with pytest.raises(ValueError, match="no -masm=intel"):
        counted_operations("\t.intel_syntax noprefix\nf:  # @f\n# %bb.0:\n\tret\n")


@pytest.mark.parametrize("language", ["c", "c++"])
def test_a_mixed_text_makes_the_object_of_the_compiler(
    cc: ClangCompiler, tmp_path: Path, language: str
) -> None:
    source = tmp_path / "f.c"
    source.write_text(pressed_program(6, seed=4))
    flags = ["-x", language]
    text = text_of(cc, source, flags)
    names = list(counted_operations(text))
    assert len(names) == 6
    for chosen in ([], names[::2], names):
        (tmp_path / "m.s").write_text(mixed_text(text, text, chosen))
        made = cc.compile(tmp_path / "m.s", ASSEMBLE).object
        assert made == cc.compile(source, ["-O2", *flags]).object


def test_tables_of_jumps_follow_the_code_that_is_taken(
    cc: ClangCompiler, tmp_path: Path
) -> None:
    """The code of another text numbers the labels of computed jumps otherwise."""
    source = tmp_path / "f.c"
    source.write_text(JUMPS)
    plain = text_of(cc, source)

    def other(label: re.Match[str]) -> str:
        return f".Ltmp{99 - int(label[1])}"

    turned = re.sub(r"\.Ltmp(\d+)", other, plain)
    assert turned != plain
    (tmp_path / "m.s").write_text(mixed_text(plain, turned, ["run"]))
    made = cc.compile(tmp_path / "m.s", ASSEMBLE).object
    assert made == cc.compile(source, ["-O2"]).object


def test_texts_of_other_functions_are_not_mixed(
    cc: ClangCompiler, tmp_path: Path
) -> None:
    source = tmp_path / "f.c"
    source.write_text(LOOP)
    text = text_of(cc, source)
    with pytest.raises(ValueError, match="other functions or tables"):
        mixed_text(text, text.replace("total", "other"), [])
    with pytest.raises(ValueError, match="moves code out of functions"):
        mixed_text(*2 * [text.replace("total", "OUTLINED_FUNCTION_0")], [])
    with pytest.raises(ValueError, match="debug information would no longer fit"):
        mixed_text(text_of(cc, source, ["-g"]), text, [])
    with pytest.raises(PolicyError, match="does not compile by itself"):
        cc.register_costs(tmp_path / "none.c")
