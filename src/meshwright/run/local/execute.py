"""Interpreter of programs, op by op in their order.

Device programs run under `jax.shard_map`. Programs over global values run under `jax.jit`,
whose compiler follows their sharding constraints.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from meshwright.jax_private import manual_axes
from meshwright.partitioner.lower.constrained import CONSTRAIN, USER_SHARD_MAP
from meshwright.program.ir import Atom, Literal, Op, Program, Wire
from meshwright.program.ops.movement.placement import spec_axes
from meshwright.program.rules.pallas_work import without_kernel
from meshwright.run.local.attention import PRIMITIVES as ATTENTION
from meshwright.run.local.attention import attention
from meshwright.run.local.device_ops import PRIMITIVES, function_of


def run_program(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program for given inputs.

    For a device program, inputs and outputs are this device's shards.
    """
    env: dict[Atom, Any] = {**dict(zip(program.inputs, inputs, strict=True))}
    env.update({**program.constants})

    def read(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            if atom.dtype == str(jax.dtypes.float0):  # the derivative of an integer
                return np.zeros(atom.shape, jax.dtypes.float0)
            return jnp.asarray(atom.value, dtype=atom.dtype)
        return env[atom]

    for op in program.ops:
        results = _run_op(op, [read(a) for a in op.operands])
        env.update(zip(op.results, results, strict=True))
    return [read(a) for a in program.outputs]


def _run_op(op: Op, operands: list[Any]) -> Sequence[Any]:
    if op.bodies:
        return _REGIONS[op.kind](op, operands)
    if op.kind == CONSTRAIN:
        sharding: Any = op.params["sharding"]
        return [lax.with_sharding_constraint(operands[0], sharding)]
    if op.kind == USER_SHARD_MAP:
        return _user_shard_map(op, operands)
    if op.kind == "shard_map":
        return _manual(op, operands)
    if "mesh_axes" in op.params:
        return _run_effect(op, operands)
    if op.kind in PRIMITIVES:
        return PRIMITIVES[op.kind](operands, op.params)
    if op.kind in ATTENTION:
        return attention(op, operands)
    if op.primitive is None:
        params = {k: v for k, v in op.params.items() if k != "reason"}
        if op.kind == "iota":
            params["dtype"] = op.results[0].dtype
        result = function_of(op.kind)(*operands, **params)
        return result if isinstance(result, list) else [result]
    primitive: Any = op.primitive
    params = primitive.get_bind_params(dict(without_kernel(op.params)))
    result = primitive.bind(*operands, **params)
    return result if primitive.multiple_results else [result]


def _manual(op: Op, operands: list[Any]) -> list[Any]:
    """Run the body of a user's `shard_map` on this device's parts.

    Lowering hands over parts of the operands. A `shard_map` within the body of another is
    not lowered: its operands are sliced here by its specs, and its results gathered.
    """
    params: Any = op.params
    body: Program = params["jaxpr"]
    inputs = [
        _part(x, value.shape, spec)
        for x, value, spec in zip(
            operands, body.inputs, params["in_specs"], strict=True
        )
    ]
    outputs = run_program(body, inputs)
    return [
        _whole(x, value.shape, spec)
        for x, value, spec in zip(outputs, op.results, params["out_specs"], strict=True)
    ]


def _part(x: Any, shape: tuple[int, ...], spec: object) -> Any:
    """This device's part of `x`, of this shape, by the mesh axes in `spec`."""
    for dim, axes in enumerate(spec_axes(spec, len(shape))):
        if x.shape[dim] != shape[dim]:
            start = lax.axis_index(axes) * shape[dim]
            x = lax.dynamic_slice_in_dim(x, start, shape[dim], dim)
    return x


def _whole(x: Any, shape: tuple[int, ...], spec: object) -> Any:
    """The value of this shape whose part along the mesh axes in `spec` is `x`."""
    for dim, axes in enumerate(spec_axes(spec, len(shape))):
        if x.shape[dim] != shape[dim]:
            x = lax.all_gather(x, axes, axis=dim, tiled=True)
    return x


def _user_shard_map(op: Op, operands: list[Any]) -> Sequence[Any]:
    """Run a `shard_map` of the user's code on global operands; returns its results."""
    body: Any = op.params["jaxpr"]
    params: Any = op.params
    return jax.shard_map(
        lambda *local: tuple(run_program(body, local)),
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        axis_names=set(manual_axes(params)),
        check_vma=False,
    )(*operands)


def _run_effect(op: Op, operands: list[Any]) -> list[Any]:
    """Run an op with a side effect once, on the mesh's first device.

    Its operands are complete on every device, and its results are sent to all. Lowering
    marks such ops by a parameter `mesh_axes`. Effects in a user's own `shard_map` have
    no such
    parameter: there every device runs its own, as in JAX.
    """
    primitive: Any = op.primitive
    axes = op.params["mesh_axes"]
    params = {k: v for k, v in op.params.items() if k != "mesh_axes"}

    def run(inputs: list[Any]) -> list[Any]:
        out = primitive.bind(*inputs, **params)
        return list(out) if primitive.multiple_results else [out]

    def skip(inputs: list[Any]) -> list[Any]:
        del inputs
        return [jnp.zeros(r.shape, r.dtype) for r in op.results]

    first = sum(lax.axis_index(a) for a in axes) == 0  # pyright: ignore[reportGeneralTypeIssues]
    results = lax.cond(first, run, skip, operands)
    return [lax.psum(r, axes) for r in results]


def _scan(op: Op, operands: list[Any]) -> Sequence[Any]:
    """Run a loop by `lax.scan`; returns its results in the order of the op's results.

    Values that are the same in all iterations are captured by the body, not carried.
    """
    consts = [w for w in op.wires if w.inputs and not w.outputs and not w.is_stacked]
    carries = [w for w in op.wires if w.inputs and w.outputs]
    slices = [w for w in op.wires if w.inputs and w.is_stacked]
    stacks = [w for w in op.wires if not w.inputs]

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        values = [*fixed, *carry, *xs]
        outputs = _run_body(op, 0, consts + carries + slices, values)
        return (
            [outputs[w.outputs[0][1]] for w in carries],
            [outputs[w.outputs[0][1]] for w in stacks],
        )

    fixed, init, xs = (_given(wires, operands) for wires in (consts, carries, slices))
    params: Any = op.params
    last, stacked = lax.scan(
        step, init, xs, params["length"], params["reverse"], params["unroll"]
    )
    return _results(op, [(carries, last), (stacks, stacked)])


def _while(op: Op, operands: list[Any]) -> Sequence[Any]:
    carries = [w for w in op.wires if w.operand is not None and w.outputs]
    consts = [w for w in op.wires if w.operand is not None and not w.outputs]
    fixed = _given(consts, operands)

    def condition(carry: list[Any]) -> Any:
        return _run_body(op, 0, consts + carries, [*fixed, *carry])[0]

    def body(carry: list[Any]) -> list[Any]:
        outputs = _run_body(op, 1, consts + carries, [*fixed, *carry])
        return [outputs[w.outputs[0][1]] for w in carries]

    init = _given(carries, operands)
    return _results(op, [(carries, lax.while_loop(condition, body, init))])


def _cond(op: Op, operands: list[Any]) -> Sequence[Any]:
    index = next(w for w in op.wires if not w.inputs and not w.outputs)
    args = [w for w in op.wires if w.inputs]
    outs = [w for w in op.wires if w.result is not None]

    def branch(which: int) -> Any:
        def run(given: list[Any]) -> list[Any]:
            outputs = _run_body(op, which, args, given)
            return [outputs[dict(w.outputs)[which]] for w in outs]

        return run

    given = _given(args, operands)
    chosen = _branch_here(op.params["platforms"])
    if chosen is not None:
        return _results(op, [(outs, branch(chosen)(given))])
    branches = [branch(i) for i in range(len(op.bodies))]
    results = lax.switch(operands[index.operand], branches, given)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return _results(op, [(outs, results)])


def _branch_here(platforms: Any) -> int | None:
    """The branch of `lax.platform_dependent` that this platform takes.

    Returns `None` for any other `cond`.
    """
    for index, names in enumerate(platforms or ()):
        if names is None or _platform_here() in names:
            return index
    return None


def _platform_here() -> str:
    """This platform's name in `lax.platform_dependent`; "cuda" or "rocm" for GPUs."""
    name = jax.default_backend()
    if name != "gpu":
        return name
    version = jax.devices()[0].client.platform_version
    return "rocm" if "rocm" in version.lower() else "cuda"


def _remat(op: Op, operands: list[Any]) -> Sequence[Any]:
    """Run the body of `jax.checkpoint`; returns its results.

    The barrier keeps XLA's common subexpression elimination from merging the body with
    its first execution.
    """
    given = lax.optimization_barrier(operands) if op.params["barrier"] else operands
    args = [w for w in op.wires if w.inputs]
    outputs = _run_body(op, 0, args, _given(args, given))
    outs = [w for w in op.wires if w.result is not None]
    return _results(op, [(outs, [outputs[w.outputs[0][1]] for w in outs])])


def _given(wires: Sequence[Wire], operands: Sequence[Any]) -> list[Any]:
    """Operands of a loop or branch that enter its body, one for each wire.

    A wire says how an array enters and leaves the body.
    """
    return [operands[w.operand] for w in wires]  # pyright: ignore[reportArgumentType, reportCallIssue]


def _run_body(
    op: Op, which: int, wires: Sequence[Wire], values: Sequence[Any]
) -> list[Any]:
    """Run one body of a loop or branch; returns the body's outputs.

    which: index of the body. wires: say which inputs of the body each of `values`
        becomes.
    """
    inputs: list[Any] = [None] * len(op.bodies[which].inputs)
    for wire, value in zip(wires, values, strict=True):
        for body, i in wire.inputs:
            if body == which:
                inputs[i] = value
    return run_program(op.bodies[which], inputs)


def _results(op: Op, groups: list[tuple[list[Any], Sequence[Any]]]) -> list[Any]:
    results: list[Any] = [None] * len(op.results)
    for wires, values in groups:
        for wire, value in zip(wires, values, strict=True):
            if wire.result is not None:
                results[wire.result] = value
    return results


_REGIONS = {"scan": _scan, "while": _while, "cond": _cond, "remat": _remat}
