"""The role of each value of a program: which ops compute it and read it.

Layout assignment is decided where dims have a meaning: at matrix products, convolutions,
reshapes, reductions, gathers and the carries of loops. Values between these follow.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.analysis.executions import op_executions
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ir.program import show_params

_SHORT = {
    "dot_general": "dot",
    "conv_general_dilated": "conv",
    "reshape": "reshape",
    "concatenate": "join",
    "pad": "pad",
    "gather": "gather",
    "dynamic_slice": "slice",
    "dynamic_update_slice": "update",
    "scan": "loop",
    "while": "loop",
    "sort": "sort",
    "cumsum": "scan",
}
"""Ops whose operands and results are sites, by kind."""

_DEPTH = 3
"""Ops in each direction that tell values of different parts apart."""


@dataclass(slots=True, eq=False)
class Uses:
    """What is known of a value.

    role: kinds of the op that makes it and of the ops around it that matter.
    dims: by dim "b" (batch), "c" (contracted), "f" (free) in the first product or
        convolution that reads it, or else makes it; "s" is a convolution's space, "-" a
        dim of neither.
    runs: executions of the value's program in one step.
    signature: equal for values with equal ops around them.
    twin: the value's gradient, if the program computes it by products.
    """

    role: str = ""
    dims: str = ""
    runs: int = 1
    signature: str = ""
    source: str = ""
    twin: Value | None = None
    is_site: bool = False
    maker: Op | None = None
    readers: list[tuple[Op, int]] = field(default_factory=list)


def read_uses(program: Program, paths: Sequence[str]) -> dict[Value, Uses]:
    """The uses of every value, those of nested programs included, in program order."""
    uses: dict[Value, Uses] = {}
    for value, path in zip(program.inputs, paths, strict=True):
        uses[value] = Uses(role="input", source=path)
    for op, runs in op_executions(program):
        _note(op, runs, uses)
    for value, use in uses.items():
        _describe(value, use)
    places = {value: place for place, value in enumerate(uses)}
    for value, use in uses.items():
        if use.maker is not None and use.maker.kind == "dot_general":
            twin = _gradient(value, use.maker, uses)
            if twin is not None and places[twin] > places[value]:
                use.twin = twin
    signatures = _signatures(uses)
    for value, use in uses.items():
        use.signature = signatures[value]
    return uses


def _note(op: Op, runs: int, uses: dict[Value, Uses]) -> None:
    """Record makers and readers of one op, and the inputs of its bodies."""
    for position, atom in enumerate(op.operands):
        if isinstance(atom, Value):
            uses.setdefault(atom, Uses()).readers.append((op, position))
    for value in op.results:
        use = uses.setdefault(value, Uses())
        use.maker, use.runs, use.source = op, runs, str(op.source)
    inner = runs * (op.params["length"] if op.kind == "scan" else 1)  # pyright: ignore[reportOperatorIssue]
    carried = {
        position for w in op.wires if w.inputs and w.outputs for position in w.inputs
    }
    for index, body in enumerate(op.bodies):
        for position, value in enumerate(body.inputs):
            use = uses.setdefault(value, Uses())
            is_carry = (index, position) in carried
            use.role = "carry" if is_carry else "constant"
            use.runs, use.source = inner, str(op.source)  # pyright: ignore[reportAttributeAccessIssue]


def _describe(value: Value, use: Uses) -> None:
    """Set a value's role and dims, and whether its layout is worth choosing (a site)."""
    maker = use.maker
    made = use.role or (_SHORT.get(maker.kind, "") if maker else "")
    if maker is not None and maker.kind.startswith("reduce"):
        made = "reduce"
    read = sorted({_reading(op, position) for op, position in use.readers} - {""})
    is_transpose = maker is not None and maker.kind == "transpose"
    use.role = f"{made}>{'+'.join(read)}"
    use.is_site = bool(read or made not in ("", "constant")) and not is_transpose
    products = [p for p in use.readers if p[0].kind in _PRODUCTS]
    if products:
        op, position = products[0]
        use.dims = _PRODUCTS[op.kind](op, position, len(value.shape))
    elif maker is not None and maker.kind in _PRODUCTS:
        use.dims = _PRODUCTS[maker.kind](maker, 2, len(value.shape))
    else:
        use.dims = "-" * len(value.shape)


def _reading(op: Op, position: int) -> str:
    if op.kind in _PRODUCTS:
        return f"{_SHORT[op.kind]}.{'rhs' if position else 'lhs'}"
    if op.kind.startswith("reduce"):
        return "reduce"
    return _SHORT.get(op.kind, "")


# -- dims ------------------------------------------------------------------------------


def _dot_dims(op: Op, position: int, rank: int) -> str:
    """Letters of an operand's dims, or of the result's if position is 2."""
    params: Any = op.params
    contracted, batch = params["dimension_numbers"]
    if position == 2:
        return ("b" * len(batch[0])).ljust(rank, "f")
    return "".join(
        "c" if d in contracted[position] else "b" if d in batch[position] else "f"
        for d in range(rank)
    )


def _conv_dims(op: Op, position: int, rank: int) -> str:
    params: Any = op.params
    numbers = params["dimension_numbers"]
    spec = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)[position]
    letters = ("bc", "fc", "bf")[position]
    dims = ["s"] * rank
    for letter, dim in zip(letters, spec, strict=False):
        dims[dim] = letter
    return "".join(dims)


_PRODUCTS = {"dot_general": _dot_dims, "conv_general_dilated": _conv_dims}


# -- gradients -------------------------------------------------------------------------


def _gradient(value: Value, maker: Op, uses: Mapping[Value, Uses]) -> Value | None:
    """The gradient of a product's result, if the program multiplies with it.

    The gradients of both operands are products with this gradient. If only one of them is
    computed, several values may be multiplied with that operand; the gradient is then
    the one that is itself a product with the value by which the result is multiplied.
    """
    partners = [_multiplied(a, value, maker, uses) for a in maker.operands]
    first, second = partners
    both = [v for v in first if v in second]
    if both:
        return both[0]
    alone = first if not second else second if not first else []
    if len(alone) == 1:
        return alone[0]
    others = {
        atom
        for op, position in uses[value].readers
        if op.kind == "dot_general"
        for atom in op.operands[1 - position :][:1]
    }
    likely = [
        v
        for v in alone
        if others.intersection(operands := _product_of(v, uses))
        and value not in operands
    ]
    return likely[0] if len(likely) == 1 else None


def _multiplied(
    operand: Atom, value: Value, maker: Op, uses: Mapping[Value, Uses]
) -> list[Value]:
    """Values of the shape of `value` in other products with this operand."""
    found: list[Value] = []
    for op, position in uses[operand].readers if isinstance(operand, Value) else ():
        if op is maker or op.kind != "dot_general":
            continue
        other = op.operands[1 - position]
        if (
            isinstance(other, Value)
            and other.shape == value.shape
            and other is not value
        ):
            found.append(other)
    return found


def _product_of(value: Value, uses: Mapping[Value, Uses]) -> Sequence[Atom]:
    """The operands of the product of which a value is the result, or its transpose."""
    maker = uses[value].maker
    while maker is not None and maker.kind == "transpose":
        (source,) = maker.operands
        maker = uses[source].maker if isinstance(source, Value) else None
    return maker.operands if maker is not None and maker.kind == "dot_general" else ()


# -- signatures ------------------------------------------------------------------------


def _signatures(uses: Mapping[Value, Uses]) -> dict[Value, str]:
    """A hash of the ops around each value, after Weisfeiler and Lehman."""
    # Inputs of equal layers differ in a number in their paths.
    places = {v: "#" if u.maker is None else u.source for v, u in uses.items()}
    labels = {v: _hash(f"{v} {u.role} {u.dims} {places[v]}") for v, u in uses.items()}
    for _ in range(_DEPTH):
        labels = {v: _hash(" ".join(_around(v, u, labels))) for v, u in uses.items()}
    return labels


def _around(value: Value, use: Uses, labels: Mapping[Value, str]) -> Iterator[str]:
    yield labels[value]
    if use.maker is not None:
        place = use.maker.results.index(value)
        yield f"{use.maker.kind} {place} {show_params(use.maker.params)}"
        yield from (_label(atom, labels) for atom in use.maker.operands)
    yield from sorted(
        f"{op.kind} {position} {','.join(_label(r, labels) for r in op.results)}"
        for op, position in use.readers
    )


def _label(atom: Atom, labels: Mapping[Value, str]) -> str:
    return labels[atom] if isinstance(atom, Value) else f"{atom}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
