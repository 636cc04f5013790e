"""Scans, while loops, conditionals and remats of jaxprs, as ops with bodies and wires.

Bodies are nested programs. A wire (`ir.Wire`) records how one array enters and leaves
them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import lax
from jax.extend.core import jaxpr_as_fun

from meshwright.jax_private import scan_counts
from meshwright.program.ir import Atom, Wire


@dataclass(frozen=True, slots=True)
class Region:
    """A loop, branch or remat whose bodies are still jaxprs.

    The fields are those of `ir.Op`.
    """

    kind: str
    operands: tuple[Atom, ...]
    bodies: Sequence[Any]
    wires: Sequence[Wire]
    params: Mapping[str, object] = field(default_factory=dict)


def read_region(eqn: Any, operands: tuple[Atom, ...]) -> Region | None:
    """The loop, branch or remat of a jaxpr's equation; `None` for other primitives."""
    read = _REGIONS.get(eqn.primitive.name)
    return None if read is None else read(eqn, operands)


def _scan(eqn: Any, operands: tuple[Atom, ...]) -> Region:
    num_consts, num_carry = scan_counts(eqn.params)
    first = num_consts + num_carry
    wires = [Wire(i, ((0, i),)) for i in range(num_consts)]
    for i in range(num_carry):
        wires.append(Wire(num_consts + i, ((0, num_consts + i),), ((0, i),), i))
    wires += [Wire(i, ((0, i),), is_stacked=True) for i in range(first, len(operands))]
    wires += [
        Wire(None, (), ((0, i),), i, is_stacked=True)
        for i in range(num_carry, len(eqn.outvars))
    ]
    params = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    return Region("scan", operands, [eqn.params["jaxpr"]], wires, params)


def _while(eqn: Any, operands: tuple[Atom, ...]) -> Region:
    params = eqn.params
    if params["cond_jaxpr"].out_avals[0].shape:
        params, operands = _unbatched(params, operands)
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    wires = [Wire(i, ((0, i),)) for i in range(num_cond)]
    wires += [Wire(num_cond + i, ((1, i),)) for i in range(num_body)]
    for i in range(len(eqn.outvars)):
        ends = ((0, num_cond + i), (1, num_body + i))
        wires.append(Wire(num_cond + num_body + i, ends, ((1, i),), i))
    wires.append(Wire(outputs=((0, 0),)))
    return Region(
        "while", operands, [params["cond_jaxpr"], params["body_jaxpr"]], wires
    )


def _cond(eqn: Any, operands: tuple[Atom, ...]) -> Region:
    branches = eqn.params["branches"]
    every = range(len(branches))
    wires = [Wire(0)]
    wires += [
        Wire(i + 1, tuple((b, i) for b in every)) for i in range(len(operands) - 1)
    ]
    wires += [
        Wire(None, (), tuple((b, i) for b in every), i) for i in range(len(eqn.outvars))
    ]
    params = {"platforms": eqn.params.get("branches_platforms")}
    return Region("cond", operands, branches, wires, params)


def _remat(eqn: Any, operands: tuple[Atom, ...]) -> Region:
    wires = [Wire(i, ((0, i),)) for i in range(len(operands))]
    wires += [Wire(None, (), ((0, i),), i) for i in range(len(eqn.outvars))]
    prevent = eqn.params["prevent_cse"]
    barrier = eqn.params["differentiated"] and (
        any(prevent) if isinstance(prevent, tuple) else prevent
    )
    params = {"barrier": bool(barrier)}
    return Region("remat", operands, [eqn.params["jaxpr"]], wires, params)


_REGIONS: dict[str, Callable[[Any, tuple[Atom, ...]], Region]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "remat2": _remat,
    "remat": _remat,
    "checkpoint": _remat,
}


def _unbatched[T](
    params: Any, operands: Sequence[T]
) -> tuple[dict[str, Any], tuple[T, ...]]:
    """Parameters and operands of a `while` with a scalar condition, from a batched one.

    After `vmap` the condition is an array with one bool per batch element: the loop
    runs as long as any element is true, and elements whose condition is false keep
    their carry. Here the "any" and the selects are written as ops. The new body
    evaluates the condition too, so it also gets the condition's constants.
    """
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond, body = jaxpr_as_fun(params["cond_jaxpr"]), jaxpr_as_fun(params["body_jaxpr"])

    def any_goes_on(*args: Any) -> Any:
        (going,) = cond(*args)
        return lax.reduce_or(going, tuple(range(going.ndim)))

    def one_step(*args: Any) -> list[Any]:
        first = num_cond + num_body
        fixed, own, carry = args[:num_cond], args[num_cond:first], args[first:]
        (going,) = cond(*fixed, *carry)
        dims = tuple(range(going.ndim))
        return [
            lax.select(lax.broadcast_in_dim(going, new.shape, dims), new, old)
            for old, new in zip(carry, body(*own, *carry), strict=True)
        ]

    fixed, own_carry = tuple(operands[:num_cond]), tuple(operands[num_cond:])
    cond_avals = list(params["cond_jaxpr"].in_avals)
    body_avals = cond_avals[:num_cond] + list(params["body_jaxpr"].in_avals)
    changed = {
        "cond_jaxpr": jax.make_jaxpr(any_goes_on)(*cond_avals),
        "body_jaxpr": jax.make_jaxpr(one_step)(*body_avals),
        "cond_nconsts": num_cond,
        "body_nconsts": num_cond + num_body,
    }
    return {**params, **changed}, (*fixed, *fixed, *own_carry)
