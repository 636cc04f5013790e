"""Factor rules of convolutions, which are split over batch, features, groups and space.

Factors are letters of dims that can be sharded. With one group, the features are those
of a matmul: `nc,oc->no`. With feature groups, the input's features are (g c) and the
kernel's outputs (g o). With batch groups, the input's batch is (g n) and the kernel's
outputs are (g o). A spatial dim is split in input and output, with an exchange of halos
(edge elements of neighbours). Or it is split in input and window, with a partial
output, as in the gradient of a kernel.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from meshwright.program.ir import Op, Value
from meshwright.program.ops.arithmetic.contraction import product_linear
from meshwright.program.ops.arithmetic.halo import (
    Halo,
    Sliding,
    extend,
    output_halo,
    paddings_of,
    unpadded_pairs,
    window_halo,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, local_shape
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut, Shape, opaque_rule

_INPUT, _KERNEL, _OUTPUT = range(3)


@dataclass
class _Draft:
    """The factors of input, kernel and output that have been assigned so far.

    dims: for each of the three values and each of its dims, the dim's factors.
    halos: for each factor whose split needs a halo exchange, its spatial dim and the
        halo.
    """

    dims: tuple[list[tuple[int, ...]], ...]
    factors: RuleFactors = field(default_factory=RuleFactors)
    halos: dict[int, tuple[int, Halo]] = field(default_factory=dict)

    def append(self, factor: tuple[int, ...], *places: tuple[int, int]) -> None:
        """Append a factor to dims, given as (value, dim), as the dims' minor part."""
        for value, dim in places:
            self.dims[value][dim] += factor


def _work(op: Op) -> OpWork:
    """Two operations per product of a kernel and an input element.

    Products with padding and with the zeros of dilation are left out.
    """
    _, (_, of, *_), (batch, feature, *_) = _specs(op)
    result = op.results[0].shape
    pairs = math.prod(
        unpadded_pairs(_sliding(op, spatial)) for spatial in range(len(result) - 2)
    )
    made = result[batch] * result[feature]
    return OpWork(2 * made * op.operands[1].shape[of] * pairs)


@rule("conv_general_dilated", traits=(Trait.CONTRACTION, Trait.EXPENSIVE), work=_work)
def convolve(op: Op) -> FactorRule:
    """The factor rule of a convolution, with factors of batch, features and space.

    Spatial factors that need a halo exchange are special: only `_exchange` can split
    them.
    """
    out = op.results[0].shape
    if 0 in (*op.operands[0].shape, *op.operands[1].shape, *out):
        return opaque_rule(op, "it is a convolution without elements")
    draft = _Draft(tuple([()] * len(out) for _ in range(3)))
    _name_features(op, draft)
    for spatial in range(len(out) - 2):
        _name_space(op, draft, spatial)
    lhs, rhs, result = map(tuple, draft.dims)
    return draft.factors.rule(
        (lhs, rhs),
        (result,),
        linear=product_linear(op),
        special=frozenset(draft.halos),
        local_params=_local_params,
        expand=partial(_exchange, result, draft.halos),
    )


def _name_features(op: Op, draft: _Draft) -> None:
    """Add the factors of batch and feature dims.

    Groups come first, as major factors.
    """
    (batch, feature, *_), (to, of, *_), (out_batch, out_feature, *_) = _specs(op)
    kernel, out = op.operands[1].shape, op.results[0].shape
    by_feature = op.params["feature_group_count"]
    by_batch = op.params["batch_group_count"]
    outputs = ((_KERNEL, to), (_OUTPUT, out_feature))
    one = draft.factors.one
    if by_feature > 1:
        draft.append(one(by_feature), (_INPUT, feature), *outputs)
    if by_batch > 1:
        draft.append(one(by_batch), (_INPUT, batch), *outputs)
    draft.append(one(out[out_batch]), (_INPUT, batch), (_OUTPUT, out_batch))
    contract = one if can_sum(op.results[0].dtype) else draft.factors.indivisible
    draft.append(contract(kernel[of]), (_INPUT, feature), (_KERNEL, of))
    draft.append(one(kernel[to] // (by_feature * by_batch)), *outputs)


def _name_space(op: Op, draft: _Draft, spatial: int) -> None:
    """Add the factors of one spatial dim to the rule.

    The input dim is split together with the output or with the window, whichever needs
    the smaller exchange of halos (edge elements of neighbours).
    """
    lhs, rhs, out = (
        (value, spec[2 + spatial]) for value, spec in enumerate(_specs(op))
    )
    dim = _sliding(op, spatial)
    found = [
        (halo.moved, place is rhs, halo, place)
        for halo, place in ((output_halo(dim), out), (window_halo(dim), rhs))
        if halo is not None and (place is out or can_sum(op.results[0].dtype))
    ]
    if not found:
        return
    _, _, halo, partner = min(found, key=lambda each: each[:2])
    factors = draft.factors
    shared = factors.one(halo.factor, least=halo.least)
    draft.append(shared, lhs, partner)
    draft.append(factors.indivisible(halo.minor), lhs)
    draft.append(factors.indivisible(halo.partner_minor), partner)
    if not halo.is_plain:
        draft.halos[shared[0]] = (spatial, halo)


def _sliding(op: Op, spatial: int) -> Sliding:
    values = (*op.operands, *op.results)
    size, window, out = (
        value.shape[spec[2 + spatial]]
        for value, spec in zip(values, _specs(op), strict=True)
    )
    return Sliding(
        size,
        window,
        out,
        stride=op.params["window_strides"][spatial],
        padding=paddings_of(op)[spatial],
        base=op.params["lhs_dilation"][spatial],
        dilation=op.params["rhs_dilation"][spatial],
    )


def _specs(op: Op) -> tuple[tuple[int, ...], ...]:
    """The batch, feature and spatial dims of input, kernel and output.

    The kernel's first two are its output and input features.
    """
    numbers = op.params["dimension_numbers"]
    return tuple(
        tuple(getattr(numbers, name)) for name in ("lhs_spec", "rhs_spec", "out_spec")
    )


def _local_params(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """A convolution's parameters on one device: the number of groups that it has."""
    (batch, feature, *_), (_, of, *_), (out_batch, *_) = _specs(op)
    return {
        **op.params,
        "feature_group_count": operands[0][feature] // operands[1][of],
        "batch_group_count": operands[0][batch] // results[0][out_batch],
    }


def _exchange(
    result: Dims,
    halos: Mapping[int, tuple[int, Halo]],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Fetch halos from neighbours, then convolve with the padding that remains.

    Halos are exchanged one dim after the other, so that corners are forwarded.
    """
    lhs, rhs = operands
    padding = paddings_of(op)
    for factor, (spatial, halo) in halos.items():
        if cut.is_cut(factor):
            dim = _specs(op)[0][2 + spatial]
            lhs = extend(builder, lhs, dim, cut.axes[factor], halo)
            padding[spatial] = halo.padding
    shape = local_shape(op.results[0].shape, result, cut)
    params = _local_params(op, (lhs.shape, rhs.shape), (shape,))
    return builder.apply(op, (lhs, rhs), [shape], {**params, "padding": tuple(padding)})
