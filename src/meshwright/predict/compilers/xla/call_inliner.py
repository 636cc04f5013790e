"""Call inliner: regions that run exactly once are replaced by the ops of their body.

XLA: `CallInliner`, and `WhileLoopSimplifier` for loops of one iteration. The branch
that `lax.platform_dependent` has for the compiler's platform is inlined, too.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from meshwright.predict.compilers.model.compilation import Compilation, Origins, Rewrite
from meshwright.predict.compilers.model.fusion import BARRIER
from meshwright.program.ir import Atom, Op, Program, Value


def inline_calls(
    compilation: Compilation, kept_calls: Collection[str] = ()
) -> Compilation:
    """Inline regions that run once; kept_calls: kinds of op that are not inlined."""
    inliner = Inliner(compilation.compiler.platform, kept_calls)
    return Rewrite(inliner.program)(compilation)


@dataclass(slots=True, eq=False)
class Inliner:
    """Inlines loops of one iteration, rematted regions, and branches chosen by platform."""

    platform: str = ""
    kept_calls: Collection[str] = ()
    renamed: dict[Value, Atom] = field(default_factory=dict[Value, Atom])

    def program(self, program: Program, origins: Origins) -> Program:
        """The program after inlining; the same program if nothing is inlined."""
        if not self.renamed and not any(op.bodies for op in program.ops):
            return program
        ops = tuple([new for op in program.ops for new in self.ops(op, origins)])
        outputs = tuple(map(self.atom, program.outputs))
        if ops == program.ops:
            return program
        constants = dict(program.constants)
        for op in program.ops:
            number = self.inlined_body(op)
            if number is not None:
                constants.update(op.bodies[number].constants)
        return Program(program.inputs, ops, outputs, constants)

    def atom(self, atom: Atom) -> Atom:
        """The operand that an op reads after inlining instead of `atom`."""
        return self.renamed.get(atom, atom) if isinstance(atom, Value) else atom

    def ops(self, op: Op, origins: Origins) -> list[Op]:
        """The ops that replace one op."""
        operands = tuple(map(self.atom, op.operands))
        number = self.inlined_body(op)
        if number is not None:
            return self._body_ops(op, number, operands, origins)
        made = origins.with_bodies(op, self.program)
        same = operands == op.operands
        return [made if same else origins.replace(made, operands=operands)]

    def inlined_body(self, op: Op) -> int | None:
        """The index of the body that replaces an op; `None` if the op stays."""
        if op.kind == "remat":
            return None if op.kind in self.kept_calls else 0
        if op.kind == "scan" and op.params.get("length") == 1:
            return 0
        platforms: Any = op.params.get("platforms") if op.kind == "cond" else None
        if platforms is None:
            return None
        own = (n for n, p in enumerate(platforms) if p is None or self.platform in p)
        return next(own, None)

    def _body_ops(
        self, op: Op, number: int, operands: tuple[Atom, ...], origins: Origins
    ) -> list[Op]:
        """The ops of an inlined body; reshapes drop and add the dim of iterations."""
        body = op.bodies[number]
        made: list[Op] = []
        for wire in op.wires:
            for position in [i for n, i in wire.inputs if n == number]:
                assert wire.operand is not None, "a body's input has an operand"
                inside, outside = body.inputs[position], operands[wire.operand]
                if wire.is_stacked:
                    made.append(_reshape(op, outside, inside))
                elif op.params.get("barrier") and isinstance(outside, Value):
                    made.append(Op(BARRIER, (outside,), (inside,), source=op.source))
                else:
                    self.renamed[inside] = outside
        for inner in body.ops:
            made += self.ops(inner, origins)
        for wire in op.wires:
            for position in [i for n, i in wire.outputs if n == number]:
                if wire.result is None:
                    continue
                inside = self.atom(body.outputs[position])
                result = op.results[wire.result]
                if wire.is_stacked:
                    made.append(_reshape(op, inside, result))
                else:
                    self.renamed[result] = inside
        return made


def _reshape(op: Op, operand: Atom, result: Value) -> Op:
    """An op that gives the operand's elements the shape of `result`."""
    kind = "reshape" if isinstance(operand, Value) else "broadcast_in_dim"
    return Op(kind, (operand,), (result,), source=op.source)
