"""Conversion of jaxprs to programs: calls are inlined, other primitives become ops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from meshwright.jax_private import (
    expanded,
    open_jaxpr,
    sparse_implementation,
)
from meshwright.program.capture.avals import python_integers
from meshwright.program.capture.equation_pass import OUTSIDE, EquationPass
from meshwright.program.capture.regions import Region, read_region
from meshwright.program.capture.single_axes import (
    as_on_one_device,
    is_on_one_device,
    larger_axes,
    runs_on_one_device,
    single_axes,
)
from meshwright.program.capture.source import Source
from meshwright.program.ir import Atom, Literal, Op, Program, Value

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
"""Call-like primitives that are inlined, and the parameter with the called jaxpr."""


def convert(jaxpr: Any, kept: Collection[str] = ()) -> Program:
    """The program of a jaxpr, closed or not.

    kept: names of call-like primitives that become ops, rather than being inlined.
    """
    return _Converter(kept=kept).program(jaxpr)


class _Converter:
    """Converts the equations of one jaxpr, and of the jaxprs that it calls, to ops.

    outer: source line of the call that is being inlined, if any.
    single: mesh axes of size 1 of the `shard_map`s around the jaxpr.
    kept: names of call-like primitives that become ops, rather than being inlined.
    outer_pass: the pass that calls the jaxpr.
    """

    def __init__(
        self,
        outer: Source | None = None,
        single: frozenset[str] = frozenset(),
        kept: Collection[str] = (),
        outer_pass: EquationPass = OUTSIDE,
    ) -> None:
        self.ops: list[Op] = []
        self.outer = outer
        self.outer_pass = outer_pass
        self.single = single
        self.kept = kept
        self.constants: dict[Value, Any] = {}

    def program(self, closed: Any) -> Program:
        inputs = tuple(_value(var.aval) for var in open_jaxpr(closed)[0].invars)
        outputs = self.inline(closed, inputs)
        return Program(inputs, tuple(self.ops), tuple(outputs), self.constants)

    def constant(self, const: Any, aval: Any) -> Atom:
        if not aval.shape and isinstance(const, np.ndarray | np.generic | int | float):
            return Literal(np.asarray(const)[()], _dtype(aval))
        value = _value(aval)
        self.constants[value] = const
        return value

    def read(self, atom: Any, names: dict[Any, Atom]) -> Atom:
        if hasattr(atom, "val"):
            return self.constant(atom.val, atom.aval)
        return names[atom]

    def equation(self, eqn: Any, operands: tuple[Atom, ...]) -> Sequence[Atom]:
        name = eqn.primitive.name
        called = expanded(eqn) or sparse_implementation(eqn)
        if called is None and name in _INLINED and name not in self.kept:
            called = eqn.params.get(_INLINED[name])
        if called is not None:
            return self.inline_call(eqn, called, operands)
        if name == "custom_linear_solve" and name not in self.kept:
            return self.inline_call(eqn, *_solver(eqn, operands))
        on_one_device = self.on_one_device(eqn, operands)
        if on_one_device is not None:
            return on_one_device
        if name == "convert_element_type" and isinstance(operands[0], Literal):
            return [_converted(operands[0], _dtype(eqn.outvars[0].aval))]
        if name == "rev" and _reverses_nothing(eqn):
            return operands
        source = _source(eqn, self.outer)
        region = read_region(eqn, operands)
        if region is not None:
            self.ops.append(self.region_op(region, eqn, source))
            return self.ops[-1].results
        op = _plain(eqn, operands, source, self.single, self.outer_pass.of(eqn))
        if name == "optimization_barrier":  # one independent identity for each operand
            self.ops += [
                replace(op, operands=(operand,), results=(result,))
                for operand, result in zip(operands, op.results, strict=True)
            ]
            return op.results
        self.ops.append(op)
        constraint = _constraint(eqn, op)
        if constraint is None:
            return op.results
        self.ops.append(constraint)
        return constraint.results

    def region_op(self, region: Region, eqn: Any, source: Source) -> Op:
        """The op of a loop, branch or remat, with its bodies converted.

        Ops of the bodies that have no source line get the source line of the region.
        """
        own = self.outer_pass.of(eqn)
        return Op(
            region.kind,
            region.operands,
            _results(eqn),
            region.params,
            tuple(
                _Converter(source, self.single, self.kept, own).program(body)
                for body in region.bodies
            ),
            source,
            wires=tuple(region.wires),
            has_effect=_has_effect(eqn),
            is_backward=own.is_backward,
            is_recomputed=own.is_recomputed,
        )

    def on_one_device(
        self, eqn: Any, operands: tuple[Atom, ...]
    ) -> Sequence[Atom] | None:
        """The results of a `shard_map` or collective whose mesh axes all have size 1.

        `None` for any other equation.
        """
        if runs_on_one_device(eqn, self.single):
            source = _source(eqn, self.outer)
            ops, atoms = as_on_one_device(eqn, operands, source)
            self.ops += ops
            return atoms
        if not is_on_one_device(eqn):
            return None
        before, self.single = self.single, self.single | single_axes(eqn.params)
        atoms = self.inline(eqn.params["jaxpr"], operands)
        self.single = before
        return atoms

    def inline_call(
        self, eqn: Any, called: Any, operands: Sequence[Atom]
    ) -> Sequence[Atom]:
        """Inline a call; ops without a line of the user's get that of the call."""
        outer, outer_pass = self.outer, self.outer_pass
        self.outer = _source(eqn, outer)
        self.outer_pass = outer_pass.of(eqn)
        atoms = self.inline(called, operands)
        self.outer, self.outer_pass = outer, outer_pass
        return atoms

    def inline(self, closed: Any, operands: Sequence[Atom]) -> list[Atom]:
        """Convert the equations of a called jaxpr; return the atoms of its outputs."""
        jaxpr, consts = open_jaxpr(closed)
        names: dict[Any, Atom] = {
            var: self.constant(const, var.aval)
            for var, const in zip(jaxpr.constvars, consts, strict=True)
        }
        names.update(zip(jaxpr.invars, operands, strict=True))
        for eqn in jaxpr.eqns:
            read = tuple(self.read(a, names) for a in eqn.invars)
            names.update(zip(eqn.outvars, self.equation(eqn, read), strict=True))
        return [self.read(a, names) for a in jaxpr.outvars]


def _source(eqn: Any, outer: Source | None) -> Source:
    info = eqn.source_info
    return Source(info.traceback, outer, info.name_stack)


def _solver(eqn: Any, operands: Sequence[Atom]) -> tuple[Any, tuple[Atom, ...]]:
    """The solver of a linear solve and its operands, without jaxprs for gradients."""
    counts, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    first = counts.matvec + counts.vecmat
    consts = operands[first : first + counts.solve]
    return jaxprs.solve, (*consts, *operands[sum(counts) :])


def _reverses_nothing(eqn: Any) -> bool:
    """Whether a `rev` is an identity, as in the gradient of a 1x1 convolution."""
    (aval,) = (var.aval for var in eqn.invars)
    return all(aval.shape[dim] < 2 for dim in eqn.params["dimensions"])


def _converted(literal: Literal, dtype: str) -> Literal:
    """The literal converted to another dtype."""
    with np.errstate(all="ignore"):
        return Literal(np.asarray(literal.value).astype(jnp.dtype(dtype))[()], dtype)


def _value(aval: Any) -> Value:
    return Value(tuple(aval.shape), _dtype(aval))


def _dtype(aval: Any) -> str:
    return str(aval.dtype)


def _results(eqn: Any) -> tuple[Value, ...]:
    return tuple(_value(v.aval) for v in eqn.outvars)


def _has_effect(eqn: Any) -> bool:
    """Whether an equation has a side effect.

    JAX also records the use of a mesh axis as an effect, which does not count here.
    """
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in eqn.effects)


def _plain(
    eqn: Any,
    operands: tuple[Atom, ...],
    source: Source,
    single: frozenset[str],
    own: EquationPass,
) -> Op:
    name = eqn.primitive.name
    if name == "shard_map":
        single |= single_axes(eqn.params)
    given = {key: python_integers(param) for key, param in eqn.params.items()}
    params = larger_axes(name, given, single)
    if name not in _PLACED:
        params.update((key, None) for key in _SHARDINGS if key in params)
    elif name == "shard_map":
        params["jaxpr"] = _Converter(single=single).program(params["jaxpr"])
    elif "dst_sharding" in params:
        params["sharding"] = params.pop("dst_sharding")
    if name == "ffi_call":  # rules are for the library's functions, not for the caller
        name += f":{params['target_name']}"
    return Op(
        name,
        operands,
        _results(eqn),
        params,
        (),
        source,
        eqn.primitive,
        has_effect=_has_effect(eqn),
        is_backward=own.is_backward,
        is_recomputed=own.is_recomputed,
    )


def _constraint(eqn: Any, op: Op) -> Op | None:
    """The sharding constraint that an equation's `out_sharding` parameter implies.

    `None` if the parameter is absent or names no mesh axis.
    """
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
"""Primitives that exist to set a sharding, so that they keep that parameter."""
