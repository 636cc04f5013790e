"""An HLO module as a graph with a row of features for each instruction, as in TpuGraphs."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import NUM_NODE_FEATURES, node_features
from meshwright.features.tune.learned.hlo.hlo_proto import decode
from meshwright.features.tune.learned.hlo.opcodes import OPCODES, opcode_number

_LARGE_COMPUTATIONS = ("cluster", "while", "cond")
"""Words in the names of the computations at whose ends TpuGraphs splits a graph."""

_CONFIGURABLE = frozenset(OPCODES[name] for name in ("convolution", "dot", "reshape"))
"""Opcodes whose layouts TpuGraphs varies."""


@dataclass(frozen=True, slots=True, eq=False)
class HloGraph:
    """A module of n instructions, in the order of the module, with m edges.

    node_feat: [n, 140]. node_opcode: [n], numbers of `OPCODES`, 0 if unknown.
    edge_index: [m, 2], rows (user, operand), and (caller, root) for each computation that
        an instruction calls; sorted, each once.
    node_splits: [k], starts of the program's large computations, from 0, and the end.
    """

    node_feat: NDArray[np.float32]
    node_opcode: NDArray[np.uint8]
    edge_index: NDArray[np.int64]
    node_splits: NDArray[np.int64]

    def __post_init__(self) -> None:
        n = len(self.node_opcode)
        if self.node_feat.shape != (n, NUM_NODE_FEATURES) or n == 0:
            raise LearnedError(
                f"node_feat has shape {self.node_feat.shape} for {n} opcodes: expected "
                f"(n, {NUM_NODE_FEATURES}) with n > 0"
            )
        if self.edge_index.ndim != 2 or self.edge_index.shape[1] != 2:
            raise LearnedError(
                f"edge_index has shape {self.edge_index.shape}: expected (edges, 2)"
            )
        ends = self.edge_index
        if ends.size and not (ends.min() >= 0 and ends.max() < n):
            raise LearnedError(
                f"edge_index goes from {ends.min()} to {ends.max()}: expected node numbers"
                f" from 0 to {n - 1}"
            )

    @property
    def num_nodes(self) -> int:
        return len(self.node_opcode)

    @property
    def configurable(self) -> NDArray[np.int64]:
        """The nodes [nc] whose layouts TpuGraphs varies: convolution, dot, reshape."""
        return np.flatnonzero(np.isin(self.node_opcode, list(_CONFIGURABLE)))


def hlo_graph(module: Any) -> HloGraph:
    """The graph of an HLO module.

    module: what `jax.jit(fn).lower(...)` or its `compile()` returns, an XLA module or
        computation of jaxlib, or an encoded `HloModuleProto`.
    """
    return graph_of_proto(decode("HloModule", encoded_module(module), "the HLO module"))


def encoded_module(module: Any) -> bytes:
    """The encoded `HloModuleProto` of what `hlo_graph` accepts."""
    if isinstance(module, bytes):
        return module
    if isinstance(module, jax.stages.Lowered):
        module = module.compiler_ir("hlo")
    elif isinstance(module, jax.stages.Compiled):
        executable: Any = module.runtime_executable()
        module = executable.hlo_modules()[0]
    try:
        return bytes(module.as_serialized_hlo_module_proto())
    except AttributeError:
        raise LearnedError(
            f"{type(module).__name__} is no HLO module: give the result of"
            " `jax.jit(fn).lower(...)` or of its `compile()`, or an encoded HloModuleProto"
        ) from None


def graph_of_proto(module: Any) -> HloGraph:
    """The graph of a decoded `HloModuleProto`.

    Nodes are numbered in the order of the instructions. Instruction ids have 64 bits (the
    computation's id is the upper half), so that they serve only as keys.
    """
    computations = module.computations
    instructions = [i for c in computations for i in c.instructions]
    if not instructions:
        raise LearnedError(
            f"module {module.name!r} has no instructions: this is no HLO module"
        )
    index = {instruction.id: place for place, instruction in enumerate(instructions)}
    roots = {c.id: c.root_id for c in computations}
    is_root = [i.id == c.root_id for c in computations for i in c.instructions]
    try:
        edges = {
            (place, index[other])
            for place, instruction in enumerate(instructions)
            for other in (
                *instruction.operand_ids,
                *(roots[called] for called in instruction.called_computation_ids),
            )
        }
    except KeyError as missing:
        raise LearnedError(
            f"module {module.name!r} refers to id {missing}, which it does not contain: "
            "the file is corrupt"
        ) from None
    return HloGraph(
        np.array(list(map(node_features, instructions, is_root)), np.float32),
        np.array([opcode_number(i.opcode) for i in instructions], np.uint8),
        np.array(sorted(edges), np.int64).reshape(-1, 2),
        _splits(computations),
    )


def _splits(computations: Any) -> NDArray[np.int64]:
    """The node numbers [k] that split the program: 0, each large computation's end, n."""
    splits, count = [0], 0
    for computation in computations:
        count += len(computation.instructions)
        if any(word in computation.name for word in _LARGE_COMPUTATIONS):
            splits.append(count)
    if splits[-1] < count:
        splits.append(count)
    return np.array(splits, np.int64)
