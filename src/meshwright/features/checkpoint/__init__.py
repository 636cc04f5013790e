"""Checkpoints of training: the state, its plan and the position of the data, with Orbax.

    checkpoints = mw.Checkpoints("run/checkpoints", keep=3)
    checkpoints.save(step, state, plan=plan, position=step, metrics={"loss": loss})
    restored = checkpoints.restore(shapes, plan)  # onto any mesh; restored.state, ...

In: a state of arrays, with the plan of its step. Out: files, and the state again in the
shardings of another plan. Orbax writes the arrays (TensorStore, OCDBT) and commits; this
package adds what Orbax leaves to its caller: one writer per directory, a fingerprint of
every array, the checkpoint before a damaged one, and one decision for all processes of
`jax.distributed`. Begin reading at `checkpoints.py`.
"""

from meshwright.features.checkpoint.checkpoints import Checkpoints
from meshwright.features.checkpoint.records import Restored, Saved, Skipped

__all__ = ["Checkpoints", "Restored", "Saved", "Skipped"]
