"""Interpreter of device programs under `jax.shard_map`, op by op in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.program.ir import Atom, Literal, Op, Program
from meshwright.program.rules.pallas_kernel import without_kernel
from meshwright.run.local.device_ops import PRIMITIVES, function_of
from meshwright.run.local.effects import run_effect


def run_program(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The local outputs of a device program on this device's local inputs."""
    env: dict[Atom, Any] = {**dict(zip(program.inputs, inputs, strict=True))}
    env.update({**program.constants})

    def read(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            return jnp.asarray(atom.value, dtype=atom.dtype)
        return env[atom]

    for op in program.ops:
        results = _run_op(op, [read(a) for a in op.operands])
        env.update(zip(op.results, results, strict=True))
    return [read(a) for a in program.outputs]


def _run_op(op: Op, operands: list[Any]) -> Sequence[Any]:
    if op.bodies:
        return _REGIONS[op.kind](op, operands)
    if op.kind == "shard_map":
        return run_program(op.params["jaxpr"], operands)  # pyright: ignore[reportArgumentType]
    if "mesh_axes" in op.params:
        return run_effect(op, operands)
    if op.kind in PRIMITIVES:
        return PRIMITIVES[op.kind](operands, op.params)
    if op.primitive is None:
        params = dict(op.params)
        if op.kind == "iota":
            params["dtype"] = op.results[0].dtype
        return [function_of(op.kind)(*operands, **params)]
    return _bind(op.primitive, operands, without_kernel(op.params))


def _bind(primitive: Any, operands: list[Any], params: Any) -> Sequence[Any]:
    result = primitive.bind(*operands, **primitive.get_bind_params(dict(params)))
    return result if primitive.multiple_results else [result]


def _scan(op: Op, operands: list[Any]) -> Sequence[Any]:
    """Results of `lax.scan` with constants as closures, and wires in the op's order."""
    body = op.bodies[0]
    consts = [w for w in op.wires if w.inputs and not w.outputs and not w.is_stacked]
    carries = [w for w in op.wires if w.inputs and w.outputs]
    slices = [w for w in op.wires if w.inputs and w.is_stacked]
    stacks = [w for w in op.wires if not w.inputs]

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        inputs: list[Any] = [None] * len(body.inputs)
        for wires, given in ((consts, fixed), (carries, carry), (slices, xs)):
            for wire, value in zip(wires, given, strict=True):
                inputs[wire.inputs[0][1]] = value
        outputs = run_program(body, inputs)
        return (
            [outputs[w.outputs[0][1]] for w in carries],
            [outputs[w.outputs[0][1]] for w in stacks],
        )

    fixed = [operands[w.operand] for w in consts]  # pyright: ignore[reportArgumentType, reportCallIssue]
    init = [operands[w.operand] for w in carries]  # pyright: ignore[reportArgumentType, reportCallIssue]
    xs = [operands[w.operand] for w in slices]  # pyright: ignore[reportArgumentType, reportCallIssue]
    params: Any = op.params
    last, stacked = lax.scan(
        step, init, xs, params["length"], params["reverse"], params["unroll"]
    )
    return _results(op, [(carries, last), (stacks, stacked)])


def _while(op: Op, operands: list[Any]) -> Sequence[Any]:
    carries = [w for w in op.wires if w.operand is not None and w.outputs]
    fixed = {
        end: operands[w.operand]
        for w in op.wires if w.operand is not None and not w.outputs
        for end in w.inputs
    }  # fmt: skip

    def inputs(which: int, carry: list[Any]) -> list[Any]:
        given = {
            **fixed,
            **{e: v for w, v in zip(carries, carry, strict=True) for e in w.inputs},
        }
        return [given[which, i] for i in range(len(op.bodies[which].inputs))]

    def body(carry: list[Any]) -> list[Any]:
        outputs = run_program(op.bodies[1], inputs(1, carry))
        return [outputs[w.outputs[0][1]] for w in carries]

    def condition(carry: list[Any]) -> Any:
        return run_program(op.bodies[0], inputs(0, carry))[0]

    init = [operands[w.operand] for w in carries]  # pyright: ignore[reportArgumentType, reportCallIssue]
    return _results(op, [(carries, lax.while_loop(condition, body, init))])


def _cond(op: Op, operands: list[Any]) -> Sequence[Any]:
    index = next(w for w in op.wires if not w.inputs and not w.outputs)
    args = [w for w in op.wires if w.inputs]
    outs = [w for w in op.wires if w.result is not None]

    def branch(which: int) -> Any:
        def run(given: list[Any]) -> list[Any]:
            inputs: list[Any] = [None] * len(op.bodies[which].inputs)
            for wire, value in zip(args, given, strict=True):
                for body, i in wire.inputs:
                    if body == which:
                        inputs[i] = value
            outputs = run_program(op.bodies[which], inputs)
            ends = [dict(w.outputs)[which] for w in outs]
            return [outputs[i] for i in ends]

        return run

    given = [operands[w.operand] for w in args]  # pyright: ignore[reportArgumentType, reportCallIssue]
    chosen = _branch_here(op.params["platforms"])
    if chosen is not None:
        return _results(op, [(outs, branch(chosen)(given))])
    branches = [branch(i) for i in range(len(op.bodies))]
    results = lax.switch(operands[index.operand], branches, given)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return _results(op, [(outs, results)])


def _branch_here(platforms: Any) -> int | None:
    """The branch of `lax.platform_dependent` for this platform, `None` for other conds."""
    for index, names in enumerate(platforms or ()):
        if names is None or _platform_here() in names:
            return index
    return None


def _platform_here() -> str:
    """This platform's name in `lax.platform_dependent`, "cuda" or "rocm" for GPUs."""
    name = jax.default_backend()
    if name != "gpu":
        return name
    version = jax.devices()[0].client.platform_version
    return "rocm" if "rocm" in version.lower() else "cuda"


def _remat(op: Op, operands: list[Any]) -> Sequence[Any]:
    """Results of a checkpointed body.

    The barrier keeps XLA's common subexpression elimination from merging it with the
    first execution.
    """
    body = op.bodies[0]
    inputs: list[Any] = [None] * len(body.inputs)
    given = lax.optimization_barrier(operands) if op.params["barrier"] else operands
    for wire in op.wires:
        for _, i in wire.inputs:
            inputs[i] = given[wire.operand]  # pyright: ignore[reportArgumentType, reportCallIssue]
    outputs = run_program(body, inputs)
    outs = [w for w in op.wires if w.result is not None]
    return _results(op, [(outs, [outputs[w.outputs[0][1]] for w in outs])])


def _results(op: Op, groups: list[tuple[list[Any], Sequence[Any]]]) -> list[Any]:
    results: list[Any] = [None] * len(op.results)
    for wires, values in groups:
        for wire, value in zip(wires, values, strict=True):
            if wire.result is not None:
                results[wire.result] = value
    return results


_REGIONS = {"scan": _scan, "while": _while, "cond": _cond, "remat": _remat}
