"""Tuning specs: MLIR that tells IREE the tile sizes of certain kernels.

A spec is a library of MLIR's transform dialect. A matcher compares the root op of each
dispatch with the kernel's root op, in text and types. If they are equal, an action sets
the tile sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.tiling import Tiling

_HEAD = """module @tiles attributes { transform.with_named_sequence } {
transform.named_sequence @apply_tiles(
    %op: !transform.any_op {transform.readonly},
    %config: !transform.any_param {transform.readonly}) {
  transform.annotate %op "compilation_info" = %config
    : !transform.any_op, !transform.any_param
  transform.yield
}
"""
_MATCHER = """
// {title}
transform.named_sequence @match_{number}(%root: !transform.any_op {{transform.readonly}})
    -> (!transform.any_op, !transform.any_param) {{
  %ins, %outs = transform.iree.match.cast_compatible_dag_from_root %root {{
  ^bb0({arguments}):
    {root}
  }} : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
  %config = transform.param.constant #iree_codegen.compilation_info<
    lowering_config = {config},
    translation_info = #iree_codegen.translation_info<{pipeline}>>
    -> !transform.any_param
  transform.yield %root, %config : !transform.any_op, !transform.any_param
}}
"""
_TAIL = """
transform.named_sequence @__kernel_config(
    %variant: !transform.any_op {{transform.consumed}})
    -> !transform.any_op attributes {{ iree_codegen.tuning_spec_entrypoint }} {{
  %result = transform.foreach_match in %variant
    {matches}
    : (!transform.any_op) -> !transform.any_op
  transform.yield %result : !transform.any_op
}}
}}
"""


def tuning_spec(tilings: Mapping[CpuKernel, Tiling]) -> str:
    """The text of a tuning spec with the tile sizes of each kernel.

    Kernels without a tiling keep IREE's tile sizes.
    """
    pairs = enumerate(tilings.items())
    matchers = [_matcher(i, kernel, tiling) for i, (kernel, tiling) in pairs]
    matches = ",\n    ".join(f"@match_{i} -> @apply_tiles" for i in range(len(tilings)))
    return _HEAD + "".join(matchers) + _TAIL.format(matches=matches)


def _matcher(number: int, kernel: CpuKernel, tiling: Tiling) -> str:
    return _MATCHER.format(
        title=kernel,
        number=number,
        arguments=", ".join(
            f"{name}: {type_}" for name, type_ in kernel.root_arguments
        ),
        root=kernel.root,
        config=tiling.attribute,
        pipeline=kernel.pipeline,
    )
