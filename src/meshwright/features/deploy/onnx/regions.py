"""Converters of loops and branches, whose bodies are ONNX graphs inside of the graph.

In Meshwright's IR, a wire connects an operand or result of a loop or branch with inputs
and outputs of its bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from meshwright.features.deploy.onnx.convert_ops import inline
from meshwright.features.deploy.onnx.converters import OpCall, converts
from meshwright.features.deploy.onnx.graph import OnnxGraph, value_info
from meshwright.program.ir import Wire


@converts("remat")
def remat(call: OpCall) -> list[str]:
    outputs = _body(call, call.graph, 0, _at(call, 0, call.op.wires))
    return _results(call, outputs)


@converts("scan")
def scan(call: OpCall) -> list[str]:
    """A Scan node; its body reads the scan's constants from the graph around it."""
    op = call.op
    carries = [w for w in op.wires if w.inputs and w.outputs]
    slices = [w for w in op.wires if w.inputs and w.is_stacked]
    stacks = [w for w in op.wires if not w.inputs]
    consts = [w for w in op.wires if w.inputs and not w.outputs and not w.is_stacked]
    body = call.graph.body()
    given = _at(call, 0, consts)
    program, inputs = op.bodies[0], list[Any]()
    for wire in (*carries, *slices):
        value = program.inputs[wire.inputs[0][1]]
        given[wire.inputs[0][1]] = name = body.fresh("in")
        inputs.append(value_info(name, value.shape, value.dtype))
    steps = call.graph.constant(np.zeros(int(call.params["length"])), "float32")
    if not slices:  # the length of a loop is that of what it slices
        inputs.append(value_info(body.fresh("step"), (), "float32"))
    found = _body(call, body, 0, given)
    ends = [w.outputs[0][1] for w in (*carries, *stacks)]
    made = _graph(body, inputs, [(found[e], program.outputs[e]) for e in ends])
    operands = [
        call.names[w.operand] for w in (*carries, *slices) if w.operand is not None
    ]
    count = max(1, len(slices))
    reverse = int(bool(call.params["reverse"]))
    names = call.graph.nodes_of(
        "Scan",
        operands if slices else [*operands, steps],
        len(ends),
        body=made,
        num_scan_inputs=count,
        scan_input_directions=[reverse] * count,
        **({"scan_output_directions": [reverse] * len(stacks)} if stacks else {}),
    )
    return _placed(call, [*carries, *stacks], names)


@converts("while")
def while_(call: OpCall) -> list[str]:
    """A Loop node; the condition is computed before it, and at the end of its body."""
    op = call.op
    carries = [w for w in op.wires if w.operand is not None and w.outputs]
    consts = [w for w in op.wires if w.operand is not None and not w.outputs]
    starts = [call.names[w.operand] for w in carries if w.operand is not None]
    (first,) = _body(call, call.graph, 0, _at(call, 0, consts, carries, starts))
    body = call.graph.body()
    names = [body.fresh("in") for _ in carries]
    inputs = [value_info(body.fresh("step"), (), "int64")]
    inputs.append(value_info(body.fresh("going"), (), "bool"))
    program = op.bodies[1]
    for name, wire in zip(names, carries, strict=True):
        value = program.inputs[dict(wire.inputs)[1]]
        inputs.append(value_info(name, value.shape, value.dtype))
    found = _body(call, body, 1, _at(call, 1, consts, carries, names))
    after = [found[w.outputs[0][1]] for w in carries]
    (going,) = _body(call, body, 0, _at(call, 0, consts, carries, after))
    values = [program.outputs[w.outputs[0][1]] for w in carries]
    going_value = op.bodies[0].outputs[0]
    pairs = [(going, going_value), *zip(after, values, strict=True)]
    made = _graph(body, inputs, pairs)
    results = call.graph.nodes_of("Loop", ["", first, *starts], len(carries), body=made)
    return _placed(call, carries, results)


@converts("cond")
def cond(call: OpCall) -> list[str]:
    """An If node; more than two branches are If nodes inside each other."""
    op = call.op
    which = next(w for w in op.wires if not w.inputs and not w.outputs)
    assert which.operand is not None, "a branch index is an operand"
    index, dtype = call.names[which.operand], op.operands[which.operand].dtype
    outs = [w for w in op.wires if w.result is not None]

    def branch(graph: OnnxGraph, i: int) -> list[str]:
        results = _body(call, graph, i, _at(call, i, op.wires))
        return [results[dict(w.outputs)[i]] for w in outs]

    def choose(graph: OnnxGraph, i: int) -> list[str]:
        if i == len(op.bodies) - 1:
            return branch(graph, i)
        here, there = graph.body(), graph.body()
        values = [op.bodies[i].outputs[dict(w.outputs)[i]] for w in outs]
        one = _graph(here, [], list(zip(branch(here, i), values, strict=True)))
        other = _graph(there, [], list(zip(choose(there, i + 1), values, strict=True)))
        limit = graph.constant(i, dtype)
        is_here = (
            graph.node("Not", [index])
            if dtype == "bool"
            else graph.node("LessOrEqual", [index, limit])
        )
        return graph.nodes_of(
            "If", [is_here], len(outs), then_branch=one, else_branch=other
        )

    return _placed(call, outs, choose(call.graph, 0))


def _at(
    call: OpCall,
    body: int,
    consts: Sequence[Wire],
    carries: Sequence[Wire] = (),
    names: Sequence[str] = (),
) -> dict[int, str]:
    """Names of the inputs of one body, by position.

    consts: wires whose operand the body reads. carries: wires whose inputs are called
        `names`.
    """
    given = {
        position: call.names[w.operand]
        for w in consts
        if w.operand is not None
        for b, position in w.inputs
        if b == body
    }
    for wire, name in zip(carries, names, strict=True):
        given |= {position: name for b, position in wire.inputs if b == body}
    return given


def _body(
    call: OpCall, graph: OnnxGraph, body: int, given: dict[int, str]
) -> list[str]:
    """Append the ops of a body to a graph; return the names of its outputs."""
    program = call.op.bodies[body]
    return inline(graph, program, [given[i] for i in range(len(program.inputs))])


def _graph(
    body: OnnxGraph, inputs: Sequence[Any], outputs: Sequence[tuple[str, Any]]
) -> Any:
    """ONNX's graph of a body.

    Each output gets an Identity node, since ONNX allows no output that is an input or
    constant.
    """
    infos = []
    for name, value in outputs:
        own = body.node("Identity", [name])
        infos.append(value_info(own, value.shape, value.dtype))
    make = import_module("onnx").helper.make_graph
    return make(body.nodes, body.fresh("body"), list(inputs), infos)


def _results(call: OpCall, outputs: Sequence[str]) -> list[str]:
    outs = [w for w in call.op.wires if w.result is not None]
    return _placed(call, outs, [outputs[w.outputs[0][1]] for w in outs])


def _placed(call: OpCall, wires: Sequence[Wire], names: Sequence[str]) -> list[str]:
    """Names of an op's results in order, given the names of those on `wires`."""
    found = {w.result: name for w, name in zip(wires, names, strict=True)}
    return [found[i] for i in range(len(call.op.results))]
