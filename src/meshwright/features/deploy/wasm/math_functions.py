"""C math functions that IREE's kernels call, compiled for WebAssembly by LLVM."""

from __future__ import annotations

import llvmlite.binding as llvm

_TRIPLE = "wasm32-unknown-unknown"
_LAYOUT = "e-m:e-p:32:32-i64:64-n32:64-S128"

_EXTREME = """
define float @{name}(float %a, float %b) {{
  %is_a = fcmp {order} float %a, %b
  %b_is_nan = fcmp uno float %b, %b
  %takes_a = or i1 %is_a, %b_is_nan
  %chosen = select i1 %takes_a, float %a, float %b
  %a_is_nan = fcmp uno float %a, %a
  %result = select i1 %a_is_nan, float %b, float %chosen
  ret float %result
}}
"""

_ROUND = """
declare float @llvm.fabs.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.copysign.f32(float, float)
define float @roundf(float %x) {
  %size = call float @llvm.fabs.f32(float %x)
  %more = fadd float %size, 5.0e-01
  %down = call float @llvm.floor.f32(float %more)
  %result = call float @llvm.copysign.f32(float %down, float %x)
  ret float %result
}
"""

_REMAINDER = """
define float @fmodf(float %x, float %y) {
entry:
  %a = call float @llvm.fabs.f32(float %x)
  %b = call float @llvm.fabs.f32(float %y)
  %is_proper = fcmp ogt float %b, 0.0
  %is_finite = fcmp olt float %a, 0x7FF0000000000000
  %has_result = and i1 %is_proper, %is_finite
  br i1 %has_result, label %compare, label %nothing
compare:
  %is_below = fcmp olt float %a, %b
  br i1 %is_below, label %same, label %grow
same:
  ret float %x
nothing:
  %no_number = fdiv float 0.0, 0.0
  ret float %no_number
grow:
  %t = phi float [ %b, %compare ], [ %twice, %grow ]
  %twice = fadd float %t, %t
  %goes_on = fcmp ole float %twice, %a
  br i1 %goes_on, label %grow, label %shrink
shrink:
  %r = phi float [ %a, %grow ], [ %rest, %shrink ]
  %u = phi float [ %t, %grow ], [ %half, %shrink ]
  %fits = fcmp oge float %r, %u
  %less = fsub float %r, %u
  %rest = select i1 %fits, float %less, float %r
  %half = fmul float %u, 5.0e-01
  %is_above = fcmp oge float %half, %b
  br i1 %is_above, label %shrink, label %done
done:
  %result = call float @llvm.copysign.f32(float %rest, float %x)
  ret float %result
}
"""
"""Exact: b is doubled up to a, and its multiples by powers of two are subtracted."""


def math_object() -> bytes:
    """An object file with `fmaxf`, `fminf`, `fmodf` and `roundf`, to link with kernels."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = "".join(
        [
            f'target triple = "{_TRIPLE}"\ntarget datalayout = "{_LAYOUT}"\n',
            _EXTREME.format(name="fmaxf", order="ogt"),
            _EXTREME.format(name="fminf", order="olt"),
            _ROUND,
            _REMAINDER,
        ]
    )
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(opt=2)
    return machine.emit_object(module)
