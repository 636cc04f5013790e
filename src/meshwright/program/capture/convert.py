"""jaxpr -> Program: calls inlined, regions normalised, everything else carried along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from meshwright.jax_private import expanded, open_jaxpr, scan_counts
from meshwright.program.capture.batched_while import is_batched, unbatch
from meshwright.program.capture.source import Source
from meshwright.program.ir import Atom, Literal, Op, Program, Value, Wire

_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_lin": "call_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
    "xla_metadata_call": "jaxpr",
    "compute_on": "jaxpr",
}
"""Call-like primitives, and the parameter that holds the jaxpr called."""


def convert(jaxpr: Any) -> Program:
    """The program of a (closed) jaxpr."""
    return _Converter().program(jaxpr)


class _Converter:
    """One conversion; `names` maps the variables in scope to our atoms.

    outer: the source of the call that is being inlined, if any.
    """

    def __init__(self, outer: Source | None = None) -> None:
        self.ops: list[Op] = []
        self.outer = outer
        self.constants: dict[Value, Any] = {}

    def program(self, closed: Any) -> Program:
        jaxpr, consts = open_jaxpr(closed)
        names: dict[Any, Atom] = {}
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            names[var] = self.constant(const, var.aval)
        inputs = tuple(_value(var.aval) for var in jaxpr.invars)
        names.update(zip(jaxpr.invars, inputs, strict=True))
        outputs = self.run(jaxpr, names)
        return Program(inputs, tuple(self.ops), tuple(outputs), self.constants)

    def constant(self, const: Any, aval: Any) -> Atom:
        if not aval.shape and isinstance(const, np.ndarray | np.generic | int | float):
            return Literal(np.asarray(const)[()], _dtype(aval))
        value = _value(aval)
        self.constants[value] = const
        return value

    def run(self, jaxpr: Any, names: dict[Any, Atom]) -> list[Atom]:
        """Convert the equations; the atoms of the jaxpr's outputs."""
        for eqn in jaxpr.eqns:
            operands = tuple(self.read(a, names) for a in eqn.invars)
            for var, atom in zip(
                eqn.outvars, self.equation(eqn, operands), strict=True
            ):
                names[var] = atom
        return [self.read(a, names) for a in jaxpr.outvars]

    def read(self, atom: Any, names: dict[Any, Atom]) -> Atom:
        if hasattr(atom, "val"):
            return self.constant(atom.val, atom.aval)
        return names[atom]

    def equation(self, eqn: Any, operands: tuple[Atom, ...]) -> Sequence[Atom]:
        name = eqn.primitive.name
        called = expanded(eqn)
        if called is None and name in _INLINED:
            called = eqn.params.get(_INLINED[name])
        if called is not None:
            outer = self.outer
            self.outer = Source(eqn.source_info.traceback, outer)
            atoms = self.inline(called, operands)
            self.outer = outer
            return atoms
        if name == "custom_linear_solve":
            return self.solve(eqn, operands)
        if name == "convert_element_type" and isinstance(operands[0], Literal):
            return [_converted(operands[0], _dtype(eqn.outvars[0].aval))]
        if name == "rev" and _turns_nothing(eqn):
            return operands
        source = Source(eqn.source_info.traceback, self.outer)
        op = _REGIONS.get(name, _plain)(eqn, operands, source)
        if name in _SEPARABLE and len(operands) > 1:
            self.ops += _separate(op)
            return op.results
        self.ops.append(op)
        demand = _demand(eqn, op)
        if demand is None:
            return op.results
        self.ops.append(demand)
        return demand.results

    def solve(self, eqn: Any, operands: tuple[Atom, ...]) -> list[Atom]:
        """The solver of a linear solve, without the transposes that only grads need."""
        counts, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
        first = counts.matvec + counts.vecmat
        consts = operands[first : first + counts.solve]
        return self.inline(jaxprs.solve, (*consts, *operands[sum(counts) :]))

    def inline(self, closed: Any, operands: tuple[Atom, ...]) -> list[Atom]:
        jaxpr, consts = open_jaxpr(closed)
        names: dict[Any, Atom] = {
            var: self.constant(const, var.aval)
            for var, const in zip(jaxpr.constvars, consts, strict=True)
        }
        names.update(zip(jaxpr.invars, operands, strict=True))
        return self.run(jaxpr, names)


def _turns_nothing(eqn: Any) -> bool:
    """Whether a `rev` is an identity: as of a kernel of 1x1, when it goes backward."""
    (aval,) = (var.aval for var in eqn.invars)
    return all(aval.shape[dim] < 2 for dim in eqn.params["dimensions"])


def _converted(literal: Literal, dtype: str) -> Literal:
    """A literal of another dtype."""
    with np.errstate(all="ignore"):
        return Literal(np.asarray(literal.value).astype(jnp.dtype(dtype))[()], dtype)


def _value(aval: Any) -> Value:
    return Value(tuple(aval.shape), _dtype(aval))


def _dtype(aval: Any) -> str:
    return str(aval.dtype)


def _results(eqn: Any) -> tuple[Value, ...]:
    return tuple(_value(v.aval) for v in eqn.outvars)


def _has_effect(eqn: Any) -> bool:
    """True for effects that somebody can see; naming a mesh axis is none."""
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in eqn.effects)


def _plain(eqn: Any, operands: tuple[Atom, ...], source: Source) -> Op:
    name = eqn.primitive.name
    params = dict(eqn.params)
    if name not in _PLACED:
        params.update((key, None) for key in _SHARDINGS if key in params)
    elif name == "shard_map":
        params["jaxpr"] = convert(params["jaxpr"])
    elif "dst_sharding" in params:
        params["sharding"] = params.pop("dst_sharding")
    return Op(
        name,
        operands,
        _results(eqn),
        params,
        (),
        source,
        eqn.primitive,
        has_effect=_has_effect(eqn),
    )


def _separate(op: Op) -> list[Op]:
    """One op per operand, so that each can be cut in its own way."""
    return [
        replace(op, operands=(operand,), results=(result,))
        for operand, result in zip(op.operands, op.results, strict=True)
    ]


_SEPARABLE = ("optimization_barrier",)
"""Identities of several operands that have nothing to do with each other."""


def _demand(eqn: Any, op: Op) -> Op | None:
    """The constraint that an op's `out_sharding` is, where it names an axis."""
    if eqn.primitive.name in _PLACED or len(op.results) != 1:
        return None
    sharding = next((eqn.params[k] for k in _SHARDINGS if eqn.params.get(k)), None)
    if not any(entry for entry in getattr(sharding, "spec", None) or ()):
        return None
    (value,) = op.results
    placed = Value(value.shape, value.dtype)
    return Op(
        "sharding_constraint",
        (value,),
        (placed,),
        {"sharding": sharding},
        (),
        op.source,
    )


_SHARDINGS = ("sharding", "out_sharding")
_PLACED = ("sharding_constraint", "reshard", "shard_map")
"""Primitives whose sharding parameter is what they are for."""


def _region(
    kind: str,
    eqn: Any,
    operands: tuple[Atom, ...],
    source: Source,
    bodies: Sequence[Any],
    wires: list[Wire],
    **params: object,
) -> Op:
    return Op(
        kind,
        operands,
        _results(eqn),
        params,
        tuple(_Converter(source).program(body) for body in bodies),
        source,
        wires=tuple(wires),
        has_effect=_has_effect(eqn),
    )


def _scan(eqn: Any, operands: tuple[Atom, ...], source: Source) -> Op:
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
    params = eqn.params
    return _region("scan", eqn, operands, source, [params["jaxpr"]], wires,
        length=params["length"], reverse=params["reverse"], unroll=params["unroll"],
    )  # fmt: skip


def _while(eqn: Any, operands: tuple[Atom, ...], source: Source) -> Op:
    params = eqn.params
    if is_batched(params):
        params, operands = unbatch(params, operands)
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    wires = [Wire(i, ((0, i),)) for i in range(num_cond)]
    wires += [Wire(num_cond + i, ((1, i),)) for i in range(num_body)]
    for i in range(len(eqn.outvars)):
        ends = ((0, num_cond + i), (1, num_body + i))
        wires.append(Wire(num_cond + num_body + i, ends, ((1, i),), i))
    wires.append(Wire(outputs=((0, 0),)))
    bodies = [params["cond_jaxpr"], params["body_jaxpr"]]
    return _region("while", eqn, operands, source, bodies, wires)


def _cond(eqn: Any, operands: tuple[Atom, ...], source: Source) -> Op:
    branches = eqn.params["branches"]
    every = range(len(branches))
    wires = [Wire(0)]
    wires += [
        Wire(i + 1, tuple((b, i) for b in every)) for i in range(len(operands) - 1)
    ]
    wires += [
        Wire(None, (), tuple((b, i) for b in every), i) for i in range(len(eqn.outvars))
    ]
    platforms = eqn.params.get("branches_platforms")
    return _region("cond", eqn, operands, source, branches, wires, platforms=platforms)


def _remat(eqn: Any, operands: tuple[Atom, ...], source: Source) -> Op:
    wires = [Wire(i, ((0, i),)) for i in range(len(operands))]
    wires += [Wire(None, (), ((0, i),), i) for i in range(len(eqn.outvars))]
    prevent = eqn.params["prevent_cse"]
    barrier = eqn.params["differentiated"] and (
        any(prevent) if isinstance(prevent, tuple) else prevent
    )
    return _region(
        "remat",
        eqn,
        operands,
        source,
        [eqn.params["jaxpr"]],
        wires,
        barrier=bool(barrier),
    )


_REGIONS: dict[str, Callable[[Any, tuple[Atom, ...], Source], Op]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "remat2": _remat,
    "remat": _remat,
    "checkpoint": _remat,
}
