"""The number of iterations of each `while`: stated by the user, computed, or assumed.

The number is the parameter `iterations` of the op, which all counts, times and searches
read (`program/analysis/executions.py`), as they read the `length` of a `scan`. The
parameter `counted` is the `Counted` that tells where it comes from.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from meshwright.errors import CaptureError, did_you_mean
from meshwright.program.analysis.executions import ASSUMED_ITERATIONS, Counted
from meshwright.program.analysis.trip_counts import trip_limit
from meshwright.program.ir import Atom, Op, Program

iterations_p = Primitive("iterations")
iterations_p.multiple_results = True
iterations_p.def_impl(lambda *xs, count: list(xs))
iterations_p.def_abstract_eval(lambda *xs, count: list(xs))
mlir.register_lowering(iterations_p, lambda ctx, *xs, count: list(xs))
batching.primitive_batchers[iterations_p] = lambda xs, dims, count: (
    iterations_p.bind(*xs, count=count),
    dims,
)
ad.primitive_jvps[iterations_p] = lambda primals, tangents, count: (
    iterations_p.bind(*primals, count=count),
    tangents,
)


def iterations[T](x: T, count: int) -> T:
    """`x` itself; its loop, whose length depends on values, counts as `count` iterations.

    x: a pytree of arrays that enter a `lax.while_loop`, or that come from one. If it is
        neither, the next loop that depends on it is meant, or else the loop around it.
    The number changes predicted figures and what a search prefers, never a result. A loop
    for which no number is stated counts as 100 iterations, or as fewer if its condition
    sets a lower limit.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CaptureError(
            f"the iterations of a loop are {count!r:.60}; wanted a whole number from 1, as "
            "in iterations(x, 64)"
        )
    leaves, tree = jax.tree_util.tree_flatten(x)
    return jax.tree_util.tree_unflatten(tree, iterations_p.bind(*leaves, count=count))


def with_iterations(program: Program, loops: Mapping[str, int]) -> Program:
    """The program with a number of iterations for each `while`, without `iterations` ops.

    loops: number of iterations by source line, such as `model.py:42`. It overrides
        `iterations` in the user's code.
    Raises `CaptureError` if a line has no loop of unknown length, or for `iterations` of a
    value that no loop computes or reads.
    """
    whiles = [op for op in _all_ops(program) if op.kind == "while"]
    stated = dict(_stated_in_code(program, None))
    for line, count in loops.items():
        _require_count(line, count)
        found = [op for op in whiles if _is_at(op, line)]
        if not found:
            raise CaptureError(_no_loop_at(line, program, whiles))
        stated |= dict.fromkeys(found, count)
    return _with_counts(program, stated)


# -- loops that the user's code names ------------------------------------------------------


def _stated_in_code(program: Program, around: Op | None) -> Iterator[tuple[Op, int]]:
    """Pairs of a `while` and the number of iterations that the user's code states.

    around: the innermost loop that contains the program.
    """
    for op in program.ops:
        if op.kind == "iterations":
            for loop in _meant(op, program, around):
                yield loop, op.params["count"]
        inner = op if op.kind in ("scan", "while") else around
        for body in _nested(op):
            yield from _stated_in_code(body, inner)


def _meant(op: Op, program: Program, around: Op | None) -> list[Op]:
    """The loops of unknown length that an `iterations` op means.

    The list is empty if it means loops of known length. Raises `CaptureError` if it means
    none.
    """
    makers = {result: each for each in program.ops for result in each.results}
    readers: dict[Atom, list[Op]] = {}
    for each in program.ops:
        for operand in each.operands:
            readers.setdefault(operand, []).append(each)
    entered = {r for value in op.results for r in readers.get(value, ())}
    direct = [each for each in entered if each.kind in ("scan", "while")]

    def before(each: Op) -> list[Op]:
        return [makers[o] for o in each.operands if o in makers]

    def after(each: Op) -> list[Op]:
        return [reader for r in each.results for reader in readers.get(r, ())]

    for loops in (direct, _nearest(op, before), _nearest(op, after), [around]):
        found = [loop for loop in loops if loop is not None]
        if found:
            return [w for loop in found for w in _outermost_whiles(loop)]
    raise CaptureError(
        f"iterations(x, {op.params['count']}) at {op.source or 'an unknown line'} is of a "
        "value that no loop computes or reads; give it what enters a lax.while_loop, or "
        "what comes from it"
    )


def _nearest(start: Op, neighbours: Callable[[Op], list[Op]]) -> list[Op]:
    """The nearest ops that contain loops, on each path from an op."""
    found: list[Op] = []
    seen, todo = {start}, neighbours(start)
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        if any(each.kind in ("scan", "while") for each in (op, *_inside(op))):
            found.append(op)
        else:
            todo += neighbours(op)
    return found


def _outermost_whiles(op: Op) -> Iterator[Op]:
    if op.kind == "while":
        yield op
    else:
        for body in _nested(op):
            for each in body.ops:
                yield from _outermost_whiles(each)


# -- the rewrite ---------------------------------------------------------------------------


def _with_counts(program: Program, stated: Mapping[Op, int]) -> Program:
    """The program with the parameters of all `while` ops, without `iterations` ops."""
    same: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        operands = tuple(same.get(operand, operand) for operand in op.operands)
        if op.kind == "iterations":
            same.update(zip(op.results, operands, strict=True))
            continue
        params = op.params
        if op.kind == "shard_map":
            params = {**params, "jaxpr": _with_counts(params["jaxpr"], stated)}
        bodies = tuple(_with_counts(body, stated) for body in op.bodies)
        changed = replace(op, operands=operands, bodies=bodies, params=params)
        if op.kind == "while":
            changed = replace(changed, params=_counted(changed, stated.get(op)))
        ops.append(changed)
    outputs = tuple(same.get(output, output) for output in program.outputs)
    return replace(program, ops=tuple(ops), outputs=outputs)


def _counted(loop: Op, stated: int | None) -> dict[str, Any]:
    """The parameters of a `while` with its number of iterations.

    stated: the number that the user stated, if any.
    """
    limit = trip_limit(loop)
    if stated is not None:
        count, counted = stated, Counted.STATED
    elif limit is None:
        count, counted = ASSUMED_ITERATIONS, Counted.ASSUMED
    elif limit.is_exact:
        count, counted = limit.iterations, Counted.EXACT
    else:
        count, counted = min(limit.iterations, ASSUMED_ITERATIONS), Counted.ASSUMED
    return {**loop.params, "iterations": count, "counted": counted}


# -- source lines --------------------------------------------------------------------------


def _is_at(op: Op, line: str) -> bool:
    """Whether an op is at `file:line`, where the file may lack its first folders."""
    return f"/{op.source}".replace("\\", "/").endswith(f"/{line}")


def _require_count(line: object, count: object) -> None:
    is_number = isinstance(count, int) and not isinstance(count, bool) and count > 0
    if not isinstance(line, str) or not is_number:
        raise CaptureError(
            f"loops has {line!r}: {count!r}; wanted iterations by source line, such as "
            '{"model.py:42": 64}'
        )


def _no_loop_at(line: str, program: Program, whiles: list[Op]) -> str:
    known = [op for op in _all_ops(program) if op.kind == "scan" and _is_at(op, line)]
    if known:
        length = known[0].params["length"]
        return (
            f"loops names {line}, whose loop has {length} iterations, as its bounds say; "
            "leave it out"
        )
    lines = list(dict.fromkeys(str(op.source) for op in whiles))
    there = f"; there are loops at {', '.join(lines)}" if lines else "; there is none"
    return f"loops names {line}, where no loop of unknown length is" + (
        did_you_mean(line, lines) or there
    )


# -- nested programs -----------------------------------------------------------------------


def _nested(op: Op) -> tuple[Program, ...]:
    """The programs inside of an op: bodies, or the program of a `shard_map`."""
    return (op.params["jaxpr"],) if op.kind == "shard_map" else op.bodies


def _all_ops(program: Program) -> Iterator[Op]:
    for op in program.ops:
        yield op
        yield from _inside(op)


def _inside(op: Op) -> Iterator[Op]:
    for body in _nested(op):
        yield from _all_ops(body)
