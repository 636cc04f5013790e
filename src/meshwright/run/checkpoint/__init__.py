"""Checkpoints of training: the state, its plan and the position of the data, with Orbax.

    checkpoints = mw.Checkpoints("run/checkpoints", keep=3)
    checkpoints.save(step, state, plan=plan, position=step, metrics={"loss": loss})
    restored = checkpoints.restore(shapes, plan)  # onto any mesh; restored.state, ...

Orbax writes the arrays (TensorStore, OCDBT) and commits; this package adds what Orbax
leaves to its caller: one writer per directory, a fingerprint of every array, the checkpoint
before a damaged one, and one decision for all processes of `jax.distributed`.
"""

from meshwright.run.checkpoint.checkpoints import Checkpoints
from meshwright.run.checkpoint.records import Restored, Saved, Skipped

__all__ = ["Checkpoints", "Restored", "Saved", "Skipped"]
