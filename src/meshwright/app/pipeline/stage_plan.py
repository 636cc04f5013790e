"""Records of a pipelined step: the plan of each stage, and the times on a machine."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.app.output.numbers import show_seconds, show_share


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage; bytes are those of one device.

    submesh: number of its submesh. mesh: the axes of that. forward_flops,
        backward_flops: of one microbatch on all devices of the submesh.
    state_bytes: of the inputs that it reads, such as weights and optimizer state, and of
        totals over microbatches. kept_bytes: of what the backward pass of one microbatch
        needs; kept_for_weights_bytes: of what its weight gradients need of that, and of
        what its input gradients hand on. sent_bytes: of what other stages receive for
        one microbatch. working_bytes: the most that a task needs beside these.
    """

    name: str
    submesh: int
    mesh: str
    forward_flops: int
    backward_flops: int
    state_bytes: int
    kept_bytes: int
    kept_for_weights_bytes: int
    sent_bytes: int
    working_bytes: int


@dataclass(frozen=True, slots=True)
class PipelineFigures:
    """A simulated step on a machine.

    step_time_s: of all microbatches, and of what runs once before and after them.
    bubble_fraction: share of the time of all microbatches in which submeshes are idle.
    forward_s, backward_s: by stage, of one microbatch.
    """

    machine: str
    step_time_s: float
    bubble_fraction: float
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"on {self.machine}: {show_seconds(self.step_time_s)} a step, bubbles "
            f"{show_share(self.bubble_fraction)}"
        )
