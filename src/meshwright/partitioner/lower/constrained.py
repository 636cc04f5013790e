"""A program with sharding constraints, for a compiler that inserts collectives.

The program stays over global values. An op `constrain` is added where a value is
computed, and where it is read in another sharding. A partial sum gets no constraint,
since none can express it: the compiler chooses where to reduce it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from meshwright.partitioner.lower.lowered import Lowered
from meshwright.partitioner.propagate import State
from meshwright.partitioner.propagate.state import cut_by
from meshwright.program.ir import Atom, Op, Program, Sharding, Value, Wire

CONSTRAIN = "constrain"
"""Kind of ops that constrain a value's sharding, given by a parameter `sharding`."""

USER_SHARD_MAP = "user_shard_map"
"""Kind of a `shard_map` in the user's code, in a program over global values."""

type Named = Callable[[Sharding], object]


def constrained_program(state: State, lowered: Lowered, named: Named) -> Program:
    """The state's program with constraints on arguments, results and values in between.

    named: makes the parameter of a constraint from a sharding, such as JAX's
    `NamedSharding`.
    """
    program = state.graph.program
    scope = _Scope(state, lowered.stored, named)
    scope.write(program)
    outputs = tuple(
        scope.constrain(atom, sharding)
        for atom, sharding in zip(program.outputs, lowered.outputs, strict=True)
    )
    return replace(program, ops=tuple(scope.ops), outputs=outputs)


class _Scope:
    """The constrained program of one body, such as of a loop, while it is written.

    stored: the sharding in which each value is stored.
    now: for each value, the constrained value that replaces it.
    known: constrained values by the original value and sharding.
    """

    def __init__(
        self, state: State, stored: Mapping[Value, Sharding], named: Named
    ) -> None:
        self.state = state
        self.stored = stored
        self.named = named
        self.ops: list[Op] = []
        self.now: dict[Value, Value] = {}
        self.known: dict[tuple[Value, Sharding], Value] = {}

    def write(self, program: Program) -> None:
        """Write all ops of a body, and the constraints between them."""
        for value in (*program.inputs, *program.constants):
            self._settle(value)
        for op in program.ops:
            self.ops.append(self._region(op) if op.bodies else self._plain(op))
            for value in op.results:
                self._settle(value)

    def constrain(self, atom: Atom, sharding: Sharding) -> Atom:
        """The value with a constraint; itself if stored so already or a partial sum."""
        if not isinstance(atom, Value):
            return atom
        have = self.stored[atom]
        if have.partial or sharding.partial or have.dims == sharding.dims:
            return self.now.get(atom, atom)
        if (atom, sharding) not in self.known:
            self.known[atom, sharding] = self._emit(self.now.get(atom, atom), sharding)
        return self.known[atom, sharding]

    def _settle(self, value: Value) -> None:
        """Add a constraint to a value where it is computed, unless scalar, partial."""
        sharding = self.stored[value]
        if value.shape and not sharding.partial:
            self.now[value] = self._emit(value, sharding)

    def _emit(self, value: Value, sharding: Sharding) -> Value:
        made = Value(value.shape, value.dtype)
        params = {"sharding": self.named(sharding)}
        self.ops.append(Op(CONSTRAIN, (value,), (made,), params))
        return made

    def _plain(self, op: Op) -> Op:
        node = self.state.graph.op_node[op]
        assert node.rule is not None
        axes = self.state.axes_of[node.index]
        operands = tuple(
            self.constrain(atom, cut_by(axes, dims))
            for atom, dims in zip(op.operands, node.rule.operands, strict=True)
        )
        if op.kind == "shard_map":
            return replace(op, kind=USER_SHARD_MAP, operands=operands)
        return replace(op, operands=operands)

    def _region(self, op: Op) -> Op:
        """A loop, branch or remat region with constraints on operands and outputs."""
        operands: list[Atom] = list(op.operands)
        outputs = [list(body.outputs) for body in op.bodies]
        scopes = [_Scope(self.state, self.stored, self.named) for _ in op.bodies]
        for scope, body in zip(scopes, op.bodies, strict=True):
            scope.write(body)
        for wire in op.wires:
            inner = self._inside(op, wire)
            for body, i in wire.outputs:
                outputs[body][i] = scopes[body].constrain(outputs[body][i], inner)
            if wire.operand is not None:
                outer = Sharding(((), *inner.dims)) if wire.is_stacked else inner
                operands[wire.operand] = self.constrain(operands[wire.operand], outer)
        bodies = tuple(
            replace(body, ops=tuple(scope.ops), outputs=tuple(ends))
            for body, scope, ends in zip(op.bodies, scopes, outputs, strict=True)
        )
        return replace(op, operands=tuple(operands), bodies=bodies)

    def _inside(self, op: Op, wire: Wire) -> Sharding:
        """The sharding that an array of a loop or branch has inside the bodies.

        wire: how the array enters and leaves. If no body reads it, its result's
            sharding is used.
        """
        for body, i in wire.inputs:
            return self.stored[op.bodies[body].inputs[i]]
        if wire.result is None:
            return Sharding(())
        outer = self.stored[op.results[wire.result]]
        return Sharding(
            outer.dims[1:] if wire.is_stacked else outer.dims, outer.partial
        )
