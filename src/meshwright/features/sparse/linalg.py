"""Lowering of a program to an MLIR module of linalg ops with sparse encodings.

Most ops become one `linalg.generic`, which follows from the op's factor rule: the
rule's factors are the loops, and the factors of each dim are the indexing maps. So one
function writes products, elementwise ops, broadcasts and reductions alike. An op reads
a sparse operand as it is stored if the op returns zero wherever that operand is zero;
the result is then sparse, too. A transposition changes only the order in which dims are
indexed. All other ops read a dense copy of the operand; `LinalgModule.expanded` lists
these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.errors import SparseError
from meshwright.features.sparse.mlir.conversions import (
    dense_copy,
    grouped,
    in_order,
    multiply_add,
)
from meshwright.features.sparse.mlir.emitter import Emitter, Tensor
from meshwright.features.sparse.mlir.formats import Format
from meshwright.features.sparse.mlir.scalars import (
    MLIR_DTYPES,
    binary_name,
    constant,
    scalar_op,
)
from meshwright.features.sparse.multiply.dense_products import dense_times_dense
from meshwright.features.sparse.multiply.gustavson import sparse_times_sparse
from meshwright.features.sparse.multiply.products import sparse_times_dense
from meshwright.features.sparse.support import (
    REDUCTIONS,
    RESHAPES,
    SUMS,
    loops_clash,
    reads_sparse,
    require_known,
    takes_any_order,
)
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ops import rule_of
from meshwright.program.ops.arithmetic.reduction import identity_of
from meshwright.program.rules.rule import FactorRule


@dataclass(frozen=True, slots=True)
class LinalgModule:
    """An MLIR module with one function, `main`.

    text: the module. constants: arrays that `main` takes after the inputs.
    inputs: the tensors that `main` takes, constants last.
    outputs: the tensor of each output, whose format may be another than the wanted.
    ordered: inputs whose stored columns must ascend in each row, by position.
    columns: for each input, the columns by which it is multiplied as it is stored.
    expanded: ops that needed a dense copy of a sparse value, each as `file:line kind`.
    """

    text: str
    constants: tuple[object, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ordered: frozenset[int]
    columns: tuple[int, ...]
    expanded: tuple[str, ...]


def to_linalg(
    program: Program,
    inputs: Sequence[Format | None],
    outputs: Sequence[Format | None],
) -> LinalgModule:
    """The program as an MLIR module.

    inputs, outputs: the format of each; `None` is dense. Raises `SparseError`, with the
        source line, for an op that this path cannot express.
    """
    require_known(program)
    return _Writer(program, outputs).module(inputs)


class _Writer:
    """Writes the ops of a program as the ops of one MLIR function.

    wanted: the format of each output.
    tensors: by value, the tensor that holds it. uses: how often each value is read.
    columns: by the name of a sparse tensor, the columns by which it is multiplied.
    pending: products that are not written yet. If a sparse mask multiplies such a
        product, both become one op, which computes only the elements that the mask has.
    """

    def __init__(self, program: Program, wanted: Sequence[Format | None]) -> None:
        self.program = program
        self.wanted = wanted
        self.code = Emitter()
        self.tensors: dict[Atom, Tensor] = {}
        self.expanded: list[str] = []
        self.columns: Counter[str] = Counter()
        self.pending: dict[Atom, Op] = {}
        reads = (a for op in program.ops for a in op.operands)
        self.uses = Counter([*reads, *program.outputs])

    def module(self, inputs: Sequence[Format | None]) -> LinalgModule:
        """The MLIR module of the whole program."""
        program = self.program
        values = (*program.inputs, *program.constants)
        formats = (*inputs, *(None for _ in program.constants))
        arguments: list[str] = []
        for value, form in zip(values, formats, strict=True):
            tensor = replace(Tensor.held(value, form), name=self.code.fresh())
            self.tensors[value] = tensor
            arguments.append(f"{tensor.name}: {self.code.type_of(tensor)}")
        for op in program.ops:
            self._op(op)
        found = [
            self._returned(atom, form)
            for atom, form in zip(program.outputs, self.wanted, strict=True)
        ]
        types = ", ".join(map(self.code.type_of, found))
        names = ", ".join(tensor.name for tensor in found)
        head = "".join(f"{a} = {f.encoding}\n" for f, a in self.code.encodings.items())
        body = "\n  ".join([*self.code.lines, f"return {names} : {types}"])
        head += "".join(self.code.functions)
        text = (
            f"{head}func.func @main({', '.join(arguments)}) -> ({types}) "
            f"attributes {{ llvm.emit_c_interface }} {{\n  {body}\n}}\n"
        )
        constants = tuple(program.constants.values())
        ordered = frozenset(
            i
            for i, value in enumerate(program.inputs)
            if self.tensors[value].name in self.code.ordered
        )
        expanded = tuple(dict.fromkeys(self.expanded))
        given = tuple(self.tensors[value] for value in values)
        columns = tuple(self.columns[t.name] for t in given[: len(program.inputs)])
        return LinalgModule(
            text, constants, given, tuple(found), ordered, columns, expanded
        )

    # -- formats -----------------------------------------------------------------------

    def _tensor(self, atom: Atom) -> Tensor:
        """The tensor that holds a value; a literal becomes a tensor without dims."""
        if atom in self.pending:
            self._product(self.pending.pop(atom))
        if isinstance(atom, Literal):
            number = constant(atom, self.code.emit)
            kind = MLIR_DTYPES[atom.dtype]
            name = self.code.emit(f"tensor.from_elements {number} : tensor<{kind}>")
            return Tensor(name, (), atom.dtype, None, ())
        return self.tensors[atom]

    def _dense(self, tensor: Tensor, op: Op | None) -> Tensor:
        """A dense copy of a sparse tensor that `op` reads; a dense tensor itself."""
        if tensor.format is not None and op is not None:
            self.expanded.append(f"{op.source} {op.kind}".strip())
        return dense_copy(self.code, tensor)

    def _returned(self, atom: Atom, form: Format | None) -> Tensor:
        """The tensor to return for an output: in the wanted format, or else dense.

        MLIR's conversion crashes, for instance of `exp` of a csr tensor to csr.
        """
        tensor = self._tensor(atom)
        wanted = None if form is None else form.held
        has_blocks = wanted is not None and wanted.name == "bsr"
        if tensor.format != wanted or (has_blocks and not tensor.is_plain):
            return self._dense(tensor, None)
        self.code.ordered.add(tensor.name)
        return tensor

    # -- ops ---------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        if op.kind == "dot_general":
            self.pending[op.results[0]] = op
        elif op.kind == "transpose":
            self._transpose(op)
        elif op.kind in RESHAPES:
            self._reshape(op)
        elif op.kind in REDUCTIONS:
            self._reduction(op)
        elif op.kind == "mul" and self._sampled(op):
            pass
        else:
            self._elementwise(op)

    def _transpose(self, op: Op) -> None:
        tensor = self._tensor(op.operands[0])
        permutation: Sequence[int] = op.params["permutation"]  # pyright: ignore[reportAssignmentType]
        order = tuple(tensor.order[d] for d in permutation)
        self.tensors[op.results[0]] = replace(tensor, order=order)

    def _reshape(self, op: Op) -> None:
        tensor = in_order(self.code, self._dense(self._tensor(op.operands[0]), op))
        for shape in ((math.prod(tensor.shape),), op.results[0].shape):
            tensor = grouped(self.code, tensor, shape)
        plain = tuple(range(len(tensor.shape)))
        self.tensors[op.results[0]] = replace(tensor, order=plain)

    def _product(self, op: Op) -> None:
        rule = rule_of(op)
        tensors = [self._tensor(a) for a in op.operands]
        (result,) = rule.results
        found = sparse_times_dense(self.code, tensors, rule.operands, result)
        if found is not None:
            self._count_columns(tensors, rule)
        else:
            found = dense_times_dense(self.code, tensors, rule.operands, result)
        if found is None:
            found = sparse_times_sparse(self.code, tensors, rule.operands, result)
        if found is not None and not takes_any_order(
            self.program, op.results[0], self.wanted
        ):
            found = dense_copy(self.code, found)
        if found is not None:
            self.tensors[op.results[0]] = found
            return
        unordered = self.code.unordered
        tensors = [self._dense(t, op) if t.name in unordered else t for t in tensors]
        if loops_clash(tensors, rule.operands):
            tensors[1] = self._dense(tensors[1], op)
        out = self.code.filled(op.results[0], 0.0)
        self.tensors[op.results[0]] = self.code.generic(
            tensors,
            rule.operands,
            out,
            result,
            multiply_add(self.code, op.results[0].dtype),
        )

    def _count_columns(self, tensors: Sequence[Tensor], rule: FactorRule) -> None:
        """Count the columns of a dense tensor for the sparse matrix that it multiplies."""
        where = 0 if tensors[0].format is not None else 1
        held = {f for dims in rule.operands[where] for f in dims}
        factors = (f for dims in rule.operands[1 - where] for f in dims)
        columns = math.prod(rule.sizes[f] for f in factors if f not in held)
        self.columns[tensors[where].name] += columns

    def _sampled(self, op: Op) -> bool:
        """Whether a multiplication was written as one op with the product it reads.

        This applies to a product times a sparse mask (SDDMM); only elements of the mask
        are computed.
        """
        waiting = [a for a in op.operands if a in self.pending and self.uses[a] == 1]
        if len(waiting) != 1 or len(set(op.operands)) != 2:
            return False
        (mask_atom,) = (a for a in op.operands if a is not waiting[0])
        mask = self._tensor(mask_atom)
        if mask.format is None or mask_atom.shape != op.results[0].shape:
            return False
        product = self.pending.pop(waiting[0])
        rule = rule_of(product)
        given = [self._dense(self._tensor(a), product) for a in product.operands]
        self.tensors[op.results[0]] = self.code.generic(
            [mask, *given],
            [rule.results[0], *rule.operands],
            self.code.empty(mask),
            rule.results[0],
            multiply_add(self.code, op.results[0].dtype),
        )
        return True

    def _reduction(self, op: Op) -> None:
        rule = rule_of(op)
        tensor = self._tensor(op.operands[0])
        if op.kind != "reduce_sum":
            tensor = self._dense(tensor, op)
        dtype, combine = op.results[0].dtype, REDUCTIONS[op.kind]
        name, kind = binary_name(combine, dtype), MLIR_DTYPES[dtype]
        start = identity_of("sum" if combine == "add" else combine, dtype)
        assert start is not None, f"{op.kind} of {dtype} has no neutral element"
        self.tensors[op.results[0]] = self.code.generic(
            [tensor],
            rule.operands,
            self.code.filled(op.results[0], start),
            rule.results[0],
            lambda given: self.code.emit(f"{name} {given[1]}, {given[0]} : {kind}"),
        )

    def _elementwise(self, op: Op) -> None:
        rule = rule_of(op)
        arrays = [
            (self._tensor(a), dims)
            for a, dims in zip(op.operands, rule.operands, strict=True)
            if isinstance(a, Value)
        ]
        tensors = self._admitted(op, [t for t, _ in arrays])
        maps = [dims for _, dims in arrays]
        out = self._empty_like(op, tensors)

        def body(given: Sequence[str]) -> str:
            rest = iter(given)
            names = [
                constant(a, self.code.emit) if isinstance(a, Literal) else next(rest)
                for a in op.operands
            ]
            if op.kind == "broadcast_in_dim":
                return names[0]
            made = scalar_op(op, names, self.code.emit)
            if made is None:
                raise SparseError(
                    f"{op.kind} of {op.operands[-1].dtype} at {op.source} has no form in "
                    "MLIR; convert its operands to floats"
                )
            return made

        self.tensors[op.results[0]] = self.code.generic(
            tensors, maps, out, rule.results[0], body
        )

    def _admitted(self, op: Op, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The operands, as dense copies where the op cannot read them sparse."""
        may = reads_sparse(op, tensors)
        return [
            t if ok else self._dense(t, op) for t, ok in zip(tensors, may, strict=True)
        ]

    def _empty_like(self, op: Op, tensors: Sequence[Tensor]) -> Tensor:
        """An empty tensor for the result of an elementwise op.

        It is sparse if the result is zero wherever the sparse operands are zero. Its
        dims lie in the order of the first operand that has all of them.
        """
        (result,) = op.results
        sparse = [t for t in tensors if t.format is not None]
        is_sum = op.kind in SUMS
        if sparse and (not is_sum or len(sparse) == len(tensors)):
            return self.code.empty(replace(sparse[0], dtype=result.dtype))
        order = next(
            (t.order for t in tensors if t.value_shape == result.shape),
            tuple(range(len(result.shape))),
        )
        return self.code.empty(Tensor.in_order(result, order))
