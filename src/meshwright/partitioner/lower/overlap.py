"""Overlap of collectives with matrix products, by loops over parts (product loops).

See `product_loops.py` and Wang et al., ASPLOS 2023 (looped CollectiveEinsum).
`find_loops` lists the possible loops, and `overlap_products` writes them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Origin, with_bodies, with_ops
from meshwright.partitioner.lower.product_dims import ProductDims
from meshwright.partitioner.lower.product_loops import (
    gathered_products,
    scattered_product,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import COLLECTIVES, Builder

type Chosen = Callable[[Op], bool]
"""A test of a collective: whether it may become a loop interleaved with a product."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductLoop:
    """A collective and the matrix products with which it can be interleaved.

    products: for an all-gather those that are computed part by part as parts arrive;
        for a reduce-scatter the one whose result it sums.
    place: the op at whose position the loop is written.
    transpose: the op between product and reduce-scatter, if any.
    is_read: whether other ops read the gathered value as well.
    """

    collective: Op
    products: tuple[Op, ...]
    place: Op
    transpose: Op | None = None
    is_read: bool = False


def find_loops(program: Program, is_chosen: Chosen) -> list[ProductLoop]:
    """The product loops of one program body, in order.

    A product is in one loop at most.
    """
    readers: dict[Atom, list[Op]] = {}
    made_at: dict[Atom, int] = {}
    for index, op in enumerate(program.ops):
        for atom in dict.fromkeys(op.operands):
            readers.setdefault(atom, []).append(op)
        made_at.update(dict.fromkeys(op.results, index))
    body = _Body(program, readers, made_at)
    loops: list[ProductLoop] = []
    taken: set[Op] = set()
    for op in program.ops:
        if op.kind not in _FINDERS or not is_chosen(op):
            continue
        loop = _FINDERS[op.kind](body, op, taken)
        if loop is not None:
            taken.update(loop.products)
            loops.append(loop)
    return loops


def walk_loops(program: Program, is_chosen: Chosen) -> Iterator[ProductLoop]:
    """The product loops of a program and, recursively, of its bodies."""
    yield from find_loops(program, is_chosen)
    for op in program.ops:
        for body in op.bodies:
            yield from walk_loops(body, is_chosen)


@dataclass(frozen=True, slots=True)
class _Body:
    """A program, and for each value its readers and the index of its producer."""

    program: Program
    readers: Mapping[Atom, list[Op]]
    made_at: Mapping[Atom, int]

    def has_one_reader(self, value: Value) -> bool:
        """Whether one op reads a value, and the program does not return it."""
        readers = self.readers.get(value, [])
        return len(readers) == 1 and value not in self.program.outputs

    def producer(self, atom: Atom) -> Op | None:
        """The op that computes a value; `None` for inputs and constants."""
        index = self.made_at.get(atom)
        return None if index is None else self.program.ops[index]


def _gather_loop(body: _Body, gather: Op, taken: Collection[Op]) -> ProductLoop | None:
    """The product loop of an all-gather; `None` if its first reader is no product.

    Later products of the gathered value join the loop if their other operands are
    computed before the first product.
    """
    (whole,) = gather.results
    readers = body.readers.get(whole, [])
    products = [op for op in readers if _is_product_of(op, whole) and op not in taken]
    if not products or readers[0] is not products[0]:
        return None
    start = body.made_at[products[0].results[0]]
    together = [
        op
        for op in products
        if all(body.made_at.get(a, -1) < start for a in op.operands)
    ]
    # Partial sums cost more memory traffic than to put the value together.
    written = tuple(op for op in together if not _is_summed(op, whole, gather))
    looped = written or tuple(together)
    is_read = len(readers) > len(looped) or whole in body.program.outputs
    return ProductLoop(gather, looped, products[0], is_read=is_read)


def _is_summed(op: Op, whole: Value, gather: Op) -> bool:
    """Whether a product contracts the dim of its operand that is gathered."""
    side, dim = op.operands.index(whole), gather.params["dim"]
    assert isinstance(dim, int)
    return ProductDims.of(op).result_dim(side, dim) is None


def _is_product_of(op: Op, value: Value) -> bool:
    return op.kind == "dot_general" and op.operands.count(value) == 1


def _scatter_loop(
    body: _Body, scatter: Op, taken: Collection[Op]
) -> ProductLoop | None:
    """The product loop of a reduce-scatter of a product, or of a transposed product."""
    (summed,) = scatter.operands
    if scatter.params["monoid"] != "sum" or summed.dtype == "bool":
        return None
    maker, transpose = body.producer(summed), None
    if maker is not None and maker.kind == "transpose":
        transpose, maker = maker, body.producer(maker.operands[0])
    chain = [op for op in (maker, transpose) if op is not None]
    if maker is None or maker.kind != "dot_general" or maker in taken:
        return None
    if not all(body.has_one_reader(op.results[0]) for op in chain):
        return None
    return ProductLoop(scatter, (maker,), scatter, transpose)


_FINDERS: Mapping[str, Callable[[_Body, Op, Collection[Op]], ProductLoop | None]] = {
    "all_gather": _gather_loop,
    "reduce_scatter": _scatter_loop,
}


def overlap_products(
    program: Program, mesh: Mesh, origins: dict[Op, Origin], is_chosen: Chosen
) -> Program:
    """The program with all chosen collectives rewritten as product loops.

    origins: the reasons for collectives, updated in place: the permutes of a loop get
        the reason of the collective that the loop replaces.
    """

    def rewrite(body: Program) -> Program:
        return overlap_products(body, mesh, origins, is_chosen)

    loops = find_loops(program, is_chosen)
    at = {loop.place: loop for loop in loops}
    left_out = {
        op for loop in loops for op in (loop.collective, *loop.products, loop.transpose)
    }
    ops: list[Op] = []
    for op in program.ops:
        if op in at:
            made = loop_ops(at[op], mesh)
            origin = origins.pop(at[op].collective)
            origins |= {
                new: replace(origin, is_overlapped=True)
                for new in made
                if new.kind in COLLECTIVES
            }
            ops += made
        if op not in left_out:
            ops.append(with_bodies(op, rewrite))
    return with_ops(program, ops)


def loop_ops(loop: ProductLoop, mesh: Mesh) -> tuple[Op, ...]:
    """The ops of a product loop.

    They compute the same values as the ops that it replaces.
    """
    collective = loop.collective
    builder = Builder(mesh, source=collective.source)
    builder.reason = str(collective.params["reason"])
    if collective.kind == "all_gather":
        return gathered_products(builder, collective, loop.products, loop.is_read)
    (product,), transpose = loop.products, loop.transpose
    dim: Any = collective.params["dim"]
    if transpose is None:
        ops = scattered_product(builder, product, collective, dim)
        return (*ops[:-1], replace(ops[-1], results=collective.results))
    order: Any = transpose.params["permutation"]
    ops = scattered_product(builder, product, collective, order[dim])
    last = replace(transpose, operands=ops[-1].results, results=collective.results)
    return (*ops, last)
