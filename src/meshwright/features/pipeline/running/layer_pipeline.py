"""A loop over equal layers as a pipeline within one program.

All arrays get a dim of stages (GSPMD, Xu et al., 2021, section 3.3). At each tick,
every stage runs its layers on the microbatch that it has. Then a shift of that dim,
which is a permute between the devices of neighbouring stages, hands the results to the
next stages. L is the number of layers, S that of stages and M that of microbatches.

before: for layer in 0..L: h = body(h, weights[layer])
    after:  for tick in 0..M + S - 1: h[S] = shift(bodies(h[S], weights[S, L / S]))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshwright.errors import StageError
from meshwright.features.pipeline.running.addends import without_sums
from meshwright.features.pipeline.running.stage_dim import (
    along_stages,
    element_of_each,
    shared_element_of_each,
)
from meshwright.features.pipeline.stages.microbatches import MICROBATCH
from meshwright.partitioner.lower.time_crossings import is_crossing
from meshwright.partitioner.lower.time_stages import reads_position
from meshwright.program.ir import Atom, Op, Wire
from meshwright.run.local.execute import run_program


@dataclass(frozen=True, eq=False)
class LayerLoop:
    """A loop over layers that is run as a pipeline, and its body for one microbatch.

    local: the loop for one microbatch. stages: number of stages. count: number of
        microbatches.
    operands, results: for each operand and result of the loop, the dim that
        microbatches divide; `None` if there is none. The leading dim of stacked values
        is not counted.
    """

    local: Op
    stages: int
    count: int
    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]

    @staticmethod
    def of(whole: Op, local: Op, stages: int, count: int) -> "LayerLoop":
        """The pipeline of a loop; `StageError` says why it cannot be divided."""
        params: Any = whole.params
        place = f"the loop at {whole.source}"
        if params["length"] % stages:
            raise StageError(
                f"{place} has {params['length']} iterations, which {stages} stages do not "
                "divide; choose a number of stages that does"
            )
        local = replace(local, bodies=(without_sums(local.bodies[0]),))
        crossing = (
            op
            for op in local.bodies[0].walk()
            if is_crossing(op, MICROBATCH) or reads_position(op, MICROBATCH)
        )
        bad = next(crossing, None)
        if bad is not None:
            raise StageError(
                f"{place} needs all microbatches at once ({bad.kind} at {bad.source}); in "
                "a single program, each layer has to work on each microbatch by itself"
            )
        operands, results = [
            [_batch_dim(a, b, count) for a, b in zip(x, y, strict=True)]
            for x, y in (
                (whole.operands, local.operands),
                (whole.results, local.results),
            )
        ]
        for wire in local.wires:
            for dims, at in ((operands, wire.operand), (results, wire.result)):
                dim = None if at is None else dims[at]
                if wire.is_stacked and at is not None and dim is not None:
                    dims[at] = dim - 1
        loop = LayerLoop(local, stages, count, tuple(operands), tuple(results))
        for wire in loop.carries:
            assert wire.result is not None
            if loop.results[wire.result] is None:
                raise StageError(
                    f"{place} carries {whole.results[wire.result]} from layer to layer, "
                    "which has no dim of the batch; in a single program, only values of "
                    "the batch go from stage to stage"
                )
        return loop

    @property
    def carries(self) -> list[Wire]:
        """The wires of the loop's carries, which one layer passes to the next."""
        return [w for w in self.local.wires if w.inputs and w.outputs]

    @property
    def is_reverse(self) -> bool:
        params: Any = self.local.params
        return bool(params["reverse"])

    def __call__(self, *given: Any) -> list[Any]:
        """Run the loop as a pipeline on operands for the whole batch."""
        wires = self.local.wires
        consts = [w for w in wires if w.inputs and not w.outputs and not w.is_stacked]
        slices = [w for w in wires if w.inputs and w.is_stacked]
        stacks = [w for w in wires if not w.inputs]

        def array(wire: Wire) -> Any:
            return jnp.asarray(given[_op(wire)])

        starts = [self._split(array(w), self.operands[_op(w)], 0) for w in self.carries]
        fixed = [self._split(array(w), self.operands[_op(w)], 0) for w in consts]
        rows = [self._staged(array(w), self.operands[_op(w)]) for w in slices]
        run = self._stage_function(consts, slices, stacks)
        place = jnp.arange(self.stages)
        turn = self.stages - 1 - place if self.is_reverse else place

        def tick(state: tuple[list[Any], list[Any]], t: Any) -> Any:
            before, totals = state
            number = t - turn
            is_valid = (number >= 0) & (number < self.count)
            at = jnp.clip(number, 0, self.count - 1)
            carry = self._entered(starts, before, t, turn == 0)
            own = [
                element_of_each(x, at) if self.operands[_op(w)] is not None else x
                for w, x in zip(slices, rows, strict=True)
            ]
            shared = [
                shared_element_of_each(x, at)
                if self.operands[_op(w)] is not None
                else x
                for w, x in zip(consts, fixed, strict=True)
            ]
            carry, made = run(carry, shared, own)
            kept = [
                self._kept(w, total, new, at, is_valid)
                for w, total, new in zip(stacks, totals, made, strict=True)
            ]
            return (carry, kept), carry

        zeros = [jnp.zeros((self.stages, *x.shape[1:]), x.dtype) for x in starts]
        totals = [self._empty(w) for w in stacks]
        ticks = jnp.arange(self.count + self.stages - 1)
        (_, totals), seen = lax.scan(tick, (zeros, totals), ticks)
        return self._results(turn == self.stages - 1, seen, stacks, totals)

    def _entered(
        self, starts: Sequence[Any], before: Sequence[Any], t: Any, is_first: Any
    ) -> list[Any]:
        """The inputs of all stages at tick `t`.

        The first stage gets a microbatch of `starts`, other stages the results in
        `before`.
        """
        number = jnp.clip(t, 0, self.count - 1)
        entering = [lax.dynamic_index_in_dim(x, number, 0, False) for x in starts]
        return [
            jnp.where(along_stages(is_first, x.ndim), new[None], x)
            for new, x in zip(entering, map(self._shifted, before), strict=True)
        ]

    def _results(
        self, last: Any, seen: list[Any], stacks: Sequence[Wire], totals: list[Any]
    ) -> list[Any]:
        """The results of the loop, from carries of all ticks and stacked values."""
        results: list[Any] = [None] * len(self.local.results)
        for wire, x in zip(self.carries, seen, strict=True):
            out = x[self.stages - 1 :]
            mask = along_stages(last, x.ndim - 1)[None]
            picked = jnp.where(mask, out, jnp.zeros_like(out)).sum(1, dtype=x.dtype)
            results[_res(wire)] = self._joined(picked, self.results[_res(wire)], 0)
        for wire, x in zip(stacks, totals, strict=True):
            results[_res(wire)] = self._unstaged(x, self.results[_res(wire)])
        return results

    def _stage_function(
        self, consts: Sequence[Wire], slices: Sequence[Wire], stacks: Sequence[Wire]
    ) -> Callable[..., Any]:
        """A function that runs the layers of all stages, each on its own microbatch."""
        body, params = self.local.bodies[0], dict[str, Any](self.local.params)

        def stage(carry: list[Any], fixed: list[Any], rows: list[Any]) -> Any:
            def layer(carry: list[Any], row: list[Any]) -> Any:
                values: list[Any] = [None] * len(body.inputs)
                pairs = zip(
                    (*consts, *self.carries, *slices),
                    (*fixed, *carry, *row),
                    strict=True,
                )
                for wire, value in pairs:
                    for _, position in wire.inputs:
                        values[position] = value
                outputs = run_program(body, values)
                return (
                    [outputs[w.outputs[0][1]] for w in self.carries],
                    [outputs[w.outputs[0][1]] for w in stacks],
                )

            length = params["length"] // self.stages
            return lax.scan(layer, carry, rows, length, self.is_reverse)

        shared = [None if self.operands[_op(w)] is None else 0 for w in consts]
        return jax.vmap(stage, in_axes=(0, shared, 0))

    # -- arrays ------------------------------------------------------------------------

    def _split(self, x: Any, dim: int | None, lead: int) -> Any:
        """Divide the batch's dim into microbatches: a new dim, behind `lead` dims.

        Microbatches are interleaved, so that each device's part of the batch has some
        of each.
        """
        if dim is None:
            return x
        at = dim + lead
        size = x.shape[at] // self.count
        x = x.reshape(*x.shape[:at], size, self.count, *x.shape[at + 1 :])
        return jnp.moveaxis(x, at + 1, lead and 1)

    def _joined(self, x: Any, dim: int | None, lead: int) -> Any:
        """Undo `_split`: merge the dim of microbatches into the batch's dim."""
        if dim is None:
            return x
        at = dim + lead
        x = jnp.moveaxis(x, lead and 1, at + 1)
        return x.reshape(*x.shape[:at], -1, *x.shape[at + 2 :])

    def _staged(self, x: Any, dim: int | None) -> Any:
        """A value read layer by layer, as [S, L / S, ...] or [S, M, L / S, ...]."""
        x = x.reshape(self.stages, -1, *x.shape[1:])
        return self._split(x, dim, 2)

    def _unstaged(self, x: Any, dim: int | None) -> Any:
        """Undo `_staged`: merge the dims of stages, microbatches and layers."""
        x = self._joined(x, dim, 2)
        return x.reshape(-1, *x.shape[2:])

    def _empty(self, wire: Wire) -> Any:
        """Zeros in the shape of one stacked result of all stages."""
        value = self.local.results[_res(wire)]
        layers = value.shape[0] // self.stages
        many = () if self.results[_res(wire)] is None else (self.count,)
        shape = (self.stages, *many, layers, *value.shape[1:])
        return jnp.zeros(shape, jnp.dtype(value.dtype))

    def _kept(self, wire: Wire, total: Any, new: Any, at: Any, is_valid: Any) -> Any:
        """A stacked result after a tick, whose part is put in place or added."""
        if self.results[_res(wire)] is not None:
            old = element_of_each(total, at)
            new = jnp.where(along_stages(is_valid, new.ndim), new, old)
            return jax.vmap(
                lambda x, v, i: lax.dynamic_update_index_in_dim(x, v, i, 0)
            )(total, new, at)
        is_sum = wire.outputs[0][1] in self._varying
        kept = jnp.zeros_like(total) if is_sum else total
        found = jnp.where(along_stages(is_valid, new.ndim), new, kept)
        return total + found if is_sum else found

    @cached_property
    def _varying(self) -> set[int]:
        """The positions of the body's outputs that depend on the batch."""
        body = self.local.bodies[0]
        wires = [w for w in self.local.wires if w.inputs]
        batch = [w for w in wires if self.operands[_op(w)] is not None]
        known = {body.inputs[at] for w in batch for _, at in w.inputs}
        for op in body.ops:
            if not known.isdisjoint(op.operands):
                known.update(op.results)
        return {at for at, atom in enumerate(body.outputs) if atom in known}

    def _shifted(self, x: Any) -> Any:
        """Give each stage the element of the stage before it, in loop order."""
        pad = (-1, 1, 0) if self.is_reverse else (1, -1, 0)
        zero = jnp.zeros((), x.dtype)
        return lax.pad(x, zero, (pad, *((0, 0, 0),) * (x.ndim - 1)))


def _batch_dim(whole: Atom, local: Atom, count: int) -> int | None:
    """The only dim in which a microbatch's value is smaller than the whole batch's."""
    pairs = zip(whole.shape, local.shape, strict=True)
    cut = [dim for dim, (n, m) in enumerate(pairs) if n != m]
    assert len(cut) < 2, f"{whole} and {local} differ in several dims"
    return cut[0] if cut else None


def _op(wire: Wire) -> int:
    assert wire.operand is not None, "the wire has no operand"
    return wire.operand


def _res(wire: Wire) -> int:
    assert wire.result is not None, "the wire has no result"
    return wire.result
