"""A checker of pipeline tasks: every value that a task reads was computed before."""

from collections.abc import Iterable, Sequence

from meshwright.features.pipeline.stages.lowered_step import LoweredStep
from meshwright.features.pipeline.stages.staged import Staged
from meshwright.features.pipeline.stages.tasks import StageTasks, TaskProgram
from meshwright.program.ir import Atom, Literal


def verify_tasks(
    staged: Staged, steps: Sequence[LoweredStep], tasks: Sequence[StageTasks]
) -> None:
    """Raise `AssertionError` for a task that reads what no earlier task computes.

    The order is: forward passes by stage, backward passes in reverse, both as one task
    and in two halves, then updates by level.
    """
    _Check(staged, steps, tasks).run()


class _Check:
    def __init__(
        self, staged: Staged, steps: Sequence[LoweredStep], tasks: Sequence[StageTasks]
    ) -> None:
        self.staged, self.steps, self.tasks = staged, steps, tasks
        self.held: list[set[Atom]] = []
        for step in steps:
            self.held.append(set(step.lowered.program.inputs))

    def run(self) -> None:
        every = range(len(self.tasks))
        for stage in every:
            self._run(stage, self.tasks[stage].before, "before")
        for stage in every:
            self._run(stage, self.tasks[stage].forward, "forward")
        for stage in reversed(every):
            held = set(self.held[stage])
            self._run(stage, self.tasks[stage].input_gradient, "input gradient")
            self._run(stage, self.tasks[stage].weight_gradient, "weight gradient")
            self.held[stage] = held
            self._run(stage, self.tasks[stage].backward, "backward")
        for stage in every:
            totals = self.steps[stage].totals.items()
            mine = [t.result for part, ts in totals if part.stage == stage for t in ts]
            self._hand_on(stage, mine)
        for level in sorted({level for each in self.tasks for level in each.updates}):
            for stage in every:
                task = self.tasks[stage].updates.get(level)
                if task is not None:
                    self._run(stage, task, f"update {level}")
        self._check_outputs()

    def _run(self, stage: int, task: TaskProgram, what: str) -> None:
        missing = [v for v in task.inputs if v not in self.held[stage]]
        assert not missing, (
            f"the {what} task of stage {stage} reads {missing[0]}, which no earlier task "
            "computes"
        )
        known = {*task.inputs, *task.program.constants}
        for op in task.program.ops:
            for atom in op.operands:
                assert isinstance(atom, Literal) or atom in known, (
                    f"{op.kind} in the {what} task of stage {stage} reads {atom}, which "
                    "is computed later or elsewhere"
                )
            known.update(op.results)
        self.held[stage].update(task.outputs)
        self._hand_on(stage, task.outputs)

    def _hand_on(self, stage: int, made: Iterable[Atom]) -> None:
        found = set(made)
        for index, send in self.steps[stage].sends.items():
            if send.value in found and send.part.stage == stage:
                received = self.steps[send.to].sends[index].received
                self.held[send.to].add(received)

    def _check_outputs(self) -> None:
        for place in range(len(self.staged.program.outputs)):
            atoms = [step.lowered.program.outputs[place] for step in self.steps]
            pairs = zip(atoms, self.held, strict=True)
            has = any(isinstance(a, Literal) or a in held for a, held in pairs)
            assert has, f"no stage computes output {place}"
