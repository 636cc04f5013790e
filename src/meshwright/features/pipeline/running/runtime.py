"""The runtime of a pipeline: stages on their submeshes, tasks in the order of a schedule.

One thread starts all tasks, in an order that respects each submesh's own; they run
asynchronously, so that submeshes compute at the same time. What one stage sends to
another is moved between shardings of both submeshes, by device.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.features.pipeline.running.stage import StageProgram, StageValues
from meshwright.features.pipeline.schedules.schedule import Schedule, Task, TaskKind
from meshwright.features.pipeline.schedules.verify import run_order
from meshwright.features.pipeline.stages.layer_weights import OpenedStep
from meshwright.features.pipeline.stages.staged import Staged
from meshwright.program.ir import Atom, Literal, Value
from meshwright.run.local.layer_stack import join_stacks, split_stacks

_LAST = {TaskKind.BACKWARD, TaskKind.WEIGHT_GRADIENT}


@dataclass(frozen=True, eq=False)
class PipelineExecutable:
    """The step of a pipeline on the submeshes of its stages.

    opened: which leaves are divided into layers. staged: the step, divided into stages.
    stages: the tasks of each stage; stages may have different lowerings of the step.
    schedule: the order of tasks on each submesh.
    outputs: for each output of the step, the number of the stage that has it.
    """

    opened: OpenedStep
    staged: Staged
    stages: tuple[StageProgram, ...]
    schedule: Schedule
    outputs: tuple[int, ...]

    @cached_property
    def order(self) -> tuple[Task, ...]:
        """All tasks, in the order in which they are started."""
        return run_order(self.schedule)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """The outputs of the step for leaves in any sharding."""
        leaves = split_stacks(leaves, self.opened.inputs)
        stages = tuple(StageValues(program) for program in self.stages)
        given = [*leaves, *(leaves[i] for i in self.staged.whole)]
        for values in stages:
            self._place(values, given)
            values.run_once(values.program.tasks.before, "work before all microbatches")
        kept: dict[tuple[Atom, int], Any] = {}
        for task in self.order:
            self._run(stages, task)
            self._release(stages[task.stage], task, kept)
        for values in stages:
            totals = values.program.step.totals.items()
            mine = [
                t
                for part, each in totals
                if part.stage == values.program.number
                for t in each
            ]
            self._hand_on(stages, values, {total.result for total in mine})
        levels = {level for p in self.stages for level in p.tasks.updates}
        for level in sorted(levels):
            for values in stages:
                task = values.program.tasks.updates.get(level)
                if task is not None:
                    values.run_once(task, "update")
                    self._hand_on(stages, values, set(task.outputs))
        outputs = self._outputs(stages, given, kept)
        return join_stacks(outputs, self.opened.outputs)

    # -- inputs ------------------------------------------------------------------------

    def _place(self, values: StageValues, given: Sequence[Any]) -> None:
        """Put the inputs that a stage reads on its submesh.

        given: flat inputs of the step. Inputs of the batch are divided into one slice
            per microbatch.
        """
        program, staged = values.program, self.staged
        inputs = program.step.lowered.program.inputs
        count = self.schedule.num_microbatches
        values.of.update({m: {} for m in range(count)})
        for i, value in enumerate(inputs[:-1]):
            if value not in program.read:
                continue
            if i not in staged.slices:
                values.once[value] = program.devices.put(given[i], value)
                continue
            for m, part in enumerate(_slices(given[i], staged.slices[i], count)):
                values.of[m][value] = program.devices.put(part, value)
        if inputs[-1] in program.read:
            for m in range(count):
                number = program.devices.put(np.int32(m), inputs[-1])
                values.of[m][inputs[-1]] = number

    # -- tasks -------------------------------------------------------------------------

    def _run(self, stages: Sequence[StageValues], task: Task) -> None:
        values, m = stages[task.stage], task.microbatch
        what = f"{task.kind.name.lower().replace('_', ' ')} pass"
        found = values.run(values.program.task(task.kind), m, what)
        for index, send in values.program.step.sends.items():
            if send.value in found and send.part.stage == task.stage:
                self._send(stages[send.to].of[m], found[send.value], send.to, index)

    def _send(
        self, receiver: dict[Atom, Any], array: Any, stage: int, index: int
    ) -> None:
        """Move an array to the submesh of the stage that reads it.

        receiver: that stage's arrays by value; the array is added.
        index: number of the value among all that stages send.
        """
        program = self.stages[stage]
        received = program.step.sends[index].received
        if received in program.read:
            receiver[received] = program.devices.put(array, received)

    def _hand_on(
        self, stages: Sequence[StageValues], values: StageValues, made: Collection[Atom]
    ) -> None:
        """Send values of a stage to the other stages that read them.

        made: the values to send; values that no other stage reads are skipped.
        """
        for index, send in values.program.step.sends.items():
            if send.value in made and send.part.stage == values.program.number:
                array = values.once[send.value]
                self._send(stages[send.to].once, array, send.to, index)

    def _release(
        self, values: StageValues, task: Task, kept: dict[tuple[Atom, int], Any]
    ) -> None:
        """Free a microbatch's arrays on a stage after its last task there.

        Outputs of the step are moved to `kept` first.
        """
        if task.kind not in _LAST:
            return
        mine = values.of[task.microbatch]
        outputs = values.program.step.lowered.program.outputs
        for place, atom in enumerate(outputs):
            if self.outputs[place] == task.stage and atom in mine:
                kept[atom, task.microbatch] = mine[atom]
        mine.clear()

    # -- outputs -----------------------------------------------------------------------

    def _outputs(
        self,
        stages: Sequence[StageValues],
        given: Sequence[Any],
        kept: Mapping[tuple[Atom, int], Any],
    ) -> list[Any]:
        """The outputs of the step, each taken from the stage that has it.

        given: flat inputs of the step. kept: outputs of single microbatches.
        """
        found: list[Any] = []
        for place, stage in enumerate(self.outputs):
            values = stages[stage]
            program = values.program.step.lowered.program
            atom = program.outputs[place]
            if isinstance(atom, Literal):
                found.append(jnp.asarray(atom.value, atom.dtype))
            elif place in self.staged.stacked or place in self.staged.last:
                found.append(self._of_microbatches(values, place, kept))
            elif atom in values.once:
                found.append(values.once[atom])
            else:
                found.append(given[program.inputs.index(atom)])
        return found

    def _of_microbatches(
        self,
        values: StageValues,
        place: int,
        kept: Mapping[tuple[Atom, int], Any],
    ) -> Any:
        """An output of the step that is computed once per microbatch.

        It is the concatenation over microbatches, or the last one's value, as the step
        says.

        place: position among the outputs of the step.
        """
        atom = values.program.step.lowered.program.outputs[place]
        count = self.schedule.num_microbatches
        if place in self.staged.last:
            return kept[atom, count - 1]
        parts = [kept[atom, m] for m in range(count)]
        assert isinstance(atom, Value), f"a literal is stacked: {atom}"
        dim = self.staged.stacked[place]
        return values.program.devices.concatenate(parts, dim, atom)


def _slices(leaf: Any, dim: int, count: int) -> list[Any]:
    """The slices of an array, one for each microbatch."""
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    size = array.shape[dim] // count
    before = (slice(None),) * dim
    return [array[(*before, slice(m * size, (m + 1) * size))] for m in range(count)]
