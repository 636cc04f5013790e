"""Records about a pipelined step: figures of each stage, and times on a machine."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.app.output.numbers import show_seconds, show_share


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The FLOPs and bytes of one pipeline stage.

    Bytes are per device. A microbatch is one of the equal parts of the batch; a task is one
    pass of the stage over a microbatch, or its weight update.
    submesh: index of the stage's submesh. mesh: the axes of the submesh as text.
    forward_flops, backward_flops: FLOPs for one microbatch on all devices of the submesh.
    state_bytes: bytes of the inputs that the stage reads, such as weights and optimizer
        state, and of its sums over microbatches.
    kept_bytes: bytes that the backward pass of one microbatch needs from the forward pass.
    kept_for_weights_bytes: bytes that the weight gradients of one microbatch need, from the
        forward pass and from the input gradients.
    sent_bytes: bytes of the values that other stages receive for one microbatch.
    working_bytes: most bytes that a task needs in addition to its inputs.
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
    """Simulated times of a pipelined step on a machine.

    step_time_s: seconds for all microbatches and for the work that runs once before and
        after them, such as the weight update.
    bubble_fraction: share of the time of all microbatches in which submeshes are idle.
    forward_s, backward_s: seconds for one microbatch, per stage.
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
