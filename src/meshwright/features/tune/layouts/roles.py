"""The role of each value of a program: which ops compute it and read it.

Compilers assign layouts at ops that treat dims differently: matrix products,
convolutions, reshapes, reductions, gathers and the carries of loops. The values of
elementwise ops between these take over the layouts that are chosen there.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.program.analysis.executions import num_iterations, op_executions
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
"""Short names of the kinds of op whose operands and results can be sites."""

_DEPTH = 3
"""Distance, in ops, up to which the ops around two values of one site are equal."""


@dataclass(slots=True, eq=False)
class Uses:
    """The ops that compute and read one value, and what follows for its layout.

    role: kinds of the op that computes the value and of the ops that read it, as far as
        they decide layouts: "dot>dot.lhs" is a product's result that is the left
        operand of another.
    dims: one letter per dim, for its part in the first product or convolution that
        reads the value, or else computes it: "b" batch, "c" contracted, "f" free, "s"
        space of a convolution; "-" if there is neither a product nor a convolution.
    runs: executions of the value's program in one step.
    signature: hash that is equal for values with equal ops around them.
    source: source line of the op that computes the value, or the input's path.
    twin: gradient with respect to the value, if the program computes it by products.
    is_site: whether the value's layout is worth choosing.
    maker: op that computes the value. readers: ops that read it, with the operand's
        position.
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
    """`Uses` of every value in program order, also in loop bodies and branches.

    paths: names of the program's inputs.
    """
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
    """Record an op as a reader of its operands and the maker of its results.

    The inputs of its bodies are recorded as carries of a loop or as constants.

    runs: executions of the op in one step.
    """
    for position, atom in enumerate(op.operands):
        if isinstance(atom, Value):
            uses.setdefault(atom, Uses()).readers.append((op, position))
    for value in op.results:
        use = uses.setdefault(value, Uses())
        use.maker, use.runs, use.source = op, runs, str(op.source)
    inner = runs * num_iterations(op)
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
    """Set a value's role and dim letters, and whether its layout is worth choosing."""
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
    """One letter per dim of a product's operand 0 or 1, or of its result (2).

    The letters are "b" (batch), "c" (contracted) and "f" (free).
    """
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
    """The gradient with respect to a product's result, if the program multiplies by it.

    In reverse mode, the gradients of a product's two operands are products of this
    gradient with the other operand. So a value of the result's shape that is multiplied
    with both operands is the gradient. If the program has only one of these two
    products, several values may be multiplied with that operand. The gradient is then
    the one that is itself a product with an operand by which `value` is multiplied.
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
    """Values of the shape of `value` that are multiplied with an operand of `maker`.

    The product `maker` itself, whose result is `value`, is left out.
    """
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
    """The operands of the matrix product that computes a value; () if there is none.

    Transposes between the product and the value are skipped.
    """
    maker = uses[value].maker
    while maker is not None and maker.kind == "transpose":
        (source,) = maker.operands
        maker = uses[source].maker if isinstance(source, Value) else None
    return maker.operands if maker is not None and maker.kind == "dot_general" else ()


# -- signatures ------------------------------------------------------------------------


def _signatures(uses: Mapping[Value, Uses]) -> dict[Value, str]:
    """A hash of the ops around each value, by colour refinement.

    Values at the same position of equal layers get equal hashes (Weisfeiler and Lehman,
    1968).
    """
    # An input's path has the layer's number in it, so the path is left out.
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
