"""Copies of ops that compute values a second time, from values that were kept.

It is the common part of all rematerialization.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

Fetch = Callable[[Value], tuple[Value, tuple[Op, ...]]]
"""A function that makes a kept value available to recomputed ops.

From the kept value, it returns the value to read instead and the ops to run before.
"""


def behind_barrier(value: Value) -> tuple[Value, tuple[Op, ...]]:
    """The value behind an optimization barrier, and the op of that barrier.

    The barrier prevents compilers from merging a recomputation with the original
    computation. `wait_for_cotangents` ties it to the backward pass.
    """
    fenced = Value(value.shape, value.dtype)
    barrier = Op("optimization_barrier", (value,), (fenced,), is_recomputed=True)
    return fenced, (barrier,)


def wait_for_cotangents(program: Program) -> Program:
    """The device program whose recomputations start when the backward pass reaches them.

    before: y = optimization_barrier(x); ...; dx = mul(tanh(y), dy)
    after:  y = optimization_barrier(x, dy); ...; dx = mul(tanh(y), dy)

    A barrier that waits only for a kept value lets a scheduler recompute right after the
    forward pass. What was recomputed is then live as long as if it had been kept. So each
    barrier also waits for what the first op that is not recomputed reads beside values that
    come from the barrier, mostly a cotangent. It waits for a value that is stored anyway
    (`_latest_stored`) and computed before the barrier. If that op has none, the next one
    counts; if no op has, the barrier waits for what the barrier before it waits for. Ops in
    bodies of loops are left as they are.
    """
    ops = list(program.ops)
    made_at = {result: index for index, op in enumerate(ops) for result in op.results}
    after: Value | None = None
    for index, op in enumerate(ops):
        if op.kind == "optimization_barrier" and op.is_recomputed:
            after = _awaited(ops, index, made_at) or after
            if after is not None:
                ops[index] = replace(op, operands=(*op.operands, after))
    return program if tuple(ops) == program.ops else replace(program, ops=tuple(ops))


def _awaited(ops: Sequence[Op], start: int, made_at: dict[Value, int]) -> Value | None:
    """The value for which a barrier waits; `None` if no op reads a stored one beside it.

    start: index of the barrier. made_at: index of the op that computes each value.
    """
    recomputed: set[Atom] = set(ops[start].results)
    for op in ops[start + 1 :]:
        if recomputed.isdisjoint(op.operands):
            continue
        if not op.is_recomputed:
            others = [v for v in op.operands if v not in recomputed]
            latest = _latest_stored(others, ops, made_at)
            if latest is not None and made_at[latest] < start:
                return latest
        recomputed.update(op.results)
    return None


def _latest_stored(
    operands: Sequence[Atom], ops: Sequence[Op], made_at: dict[Value, int]
) -> Value | None:
    """The latest value from which some operands are made, and that is stored anyway.

    A compiler stores the operands of a barrier. So those that it would compute inside of
    other kernels, such as elementwise, are followed to what they read. `None` if only
    inputs and literals are left.
    """
    found: list[Value] = []
    seen: set[Value] = set()
    left = [v for v in operands if isinstance(v, Value)]
    while left:
        value = left.pop()
        if value in seen or value not in made_at:
            continue
        seen.add(value)
        op = ops[made_at[value]]
        if any(has_trait(op.kind, each) for each in _STORED):
            found.append(value)
        else:
            left += [v for v in op.operands if isinstance(v, Value)]
    return max(found, key=made_at.__getitem__, default=None)


_STORED = (
    Trait.CONTRACTION,
    Trait.REDUCTION,
    Trait.STANDALONE,
    Trait.REGION,
    Trait.COLLECTIVE,
)
"""Traits of ops whose results compilers store, rather than fuse with what reads them."""


class Recomputation:
    """Values of one program or body that have been computed a second time so far.

    copies: for each recomputed value, its second copy. A value is fetched rather than
        computed again if it is to be kept, if no op computes it, or if an op with
        effects or a loop computes it. A loop's results are recomputed in other loops
        (`rematerialize_scans`).
    """

    def __init__(
        self, ops: Sequence[Op], keep: Collection[Value], fetch: Fetch
    ) -> None:
        self.copies: dict[Atom, Value] = {}
        self._fetch = fetch
        self._fetched: dict[Atom, Atom] = {}
        self._keep = frozenset(keep)
        self._producers = {
            result: op
            for op in ops
            if not op.has_effect and not has_trait(op.kind, Trait.LOOP)
            for result in op.results
            if result not in self._keep
        }

    def can_recompute(self, atom: Atom) -> bool:
        """Whether the value may be computed a second time, rather than fetched."""
        return atom in self._producers

    def ops_for(self, atom: Atom) -> Iterator[Op]:
        """The ops that compute a value again, after the ops that its operands need."""
        stack = [atom]
        while stack:
            atom = stack[-1]
            op = self._producers.get(atom)  # pyright: ignore[reportArgumentType]
            if op is None or atom in self.copies:
                stack.pop()
                continue
            needed = [
                o for o in op.operands if o in self._producers and o not in self.copies
            ]
            if needed:
                stack += needed
                continue
            stack.pop()
            for operand in op.operands:
                yield from self._fetch_once(operand)
            results = tuple(Value(r.shape, r.dtype) for r in op.results)
            operands = tuple(
                self.copies.get(a) or self._fetched.get(a, a) for a in op.operands
            )
            for old, new in zip(op.results, results, strict=True):
                if old not in self._keep:
                    self.copies[old] = new
            bodies = tuple(copied(body, is_recomputed=True) for body in op.bodies)
            yield replace(
                op,
                operands=operands,
                results=results,
                bodies=bodies,
                is_recomputed=True,
            )

    def _fetch_once(self, operand: Atom) -> tuple[Op, ...]:
        is_known = operand in self.copies or operand in self._fetched
        if is_known or not isinstance(operand, Value):
            return ()
        self._fetched[operand], ops = self._fetch(operand)
        return ops


def copied(program: Program, is_recomputed: bool = False) -> Program:
    """The same program over new values, since only one op may produce a value.

    is_recomputed: whether the copy computes values a second time.
    """
    new: dict[Atom, Value] = {}

    def fresh(values: Sequence[Value]) -> tuple[Value, ...]:
        made = tuple(Value(v.shape, v.dtype) for v in values)
        new.update(zip(values, made, strict=True))
        return made

    inputs = fresh(program.inputs)
    constants = dict(
        zip(fresh([*program.constants]), program.constants.values(), strict=True)
    )
    ops = tuple(
        replace(
            op,
            operands=tuple(new.get(a, a) for a in op.operands),
            results=fresh(op.results),
            bodies=tuple(copied(body, is_recomputed) for body in op.bodies),
            is_recomputed=op.is_recomputed or is_recomputed,
        )
        for op in program.ops
    )
    return Program(
        inputs, ops, tuple(new.get(a, a) for a in program.outputs), constants
    )
