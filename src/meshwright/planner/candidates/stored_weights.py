"""Shardings of weights that two plans must share, so that both use one copy.

Prefill and decoding of one model are two programs with the same weights (Pope et al.,
"Efficiently Scaling Transformer Inference", MLSys 2023).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.propagate.sub_axes import whole_axes
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.program.ir import Sharding, Value


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Types and shardings of a program's weights, which another plan must use as well.

    name: name of the program.
    mesh: the mesh of the shardings.
    of: for each weight's path, its type and its sharding.
    """

    name: str
    mesh: Mesh
    of: Mapping[str, tuple[Value, Sharding]]

    @property
    def note(self) -> str:
        """A sentence for a plan whose weights have these shardings."""
        return f"its {len(self.of)} weights are stored as in the plan of {self.name}"

    def why_not(self, decided: Decided) -> str:
        """The reason why a plan cannot use these stored weights; "" if it can.

        It names the first weight that the plan's program lacks or shards differently.
        """
        mine = _inputs(decided)
        for path, (value, sharding) in self.of.items():
            if path not in mine:
                return f"it has no input {path}, a weight of {self.name}"
            own, stored = mine[path]
            if str(own) != str(value):
                return f"its {path} is {own}, that of {self.name} {value}"
            if stored.dims != sharding.dims:
                return f"stores {path} as {stored}, {self.name} as {sharding}"
        return ""


def stored_weights(decided: Decided, name: str) -> StoredWeights:
    """The weights of a partitioned program, with their shardings.

    Raises `PlanError` if the program has no weights, or updates them.
    """
    program, work = decided.captured.program, decided.work
    params = find_roles(work).params
    updated = set(params) & set(decided.captured.ties.values())
    if not params or updated:
        what = "updates its weights" if params else "has no weights"
        raise PlanError(
            f"weights_of is the plan of {name}, which {what}; wanted a plan of a program "
            "that only reads weights, such as prefill or decoding"
        )
    inputs = _inputs(decided)
    paths = [decided.captured.paths[i] for i in params]
    assert len(program.inputs) == len(inputs)
    return StoredWeights(name, work.mesh, {path: inputs[path] for path in paths})


def _inputs(decided: Decided) -> dict[str, tuple[Value, Sharding]]:
    """Type and sharding of each input, by path.

    A sharding names axes of the user's mesh where it uses these completely, else
    sub-axes.
    """
    captured, lowered = decided.captured, decided.lowered
    axes = lowered.mesh.axes
    shardings = [whole_axes(each, axes) or each for each in lowered.inputs]
    pairs = zip(captured.program.inputs, shardings, strict=True)
    return dict(zip(captured.paths, pairs, strict=True))
