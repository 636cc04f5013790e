"""Data parallelism: every device works on its share of the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.batch_dims import (
    Leaves,
    Seeds,
    data_dims,
    guessed_batch,
    product_rows,
)
from meshwright.partitioner.structure.cut_work import (
    cut_ops,
    cut_share,
    first_cut_sums,
    gathers,
    note_uncut_work,
)
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.structure.workspace import (
    Refusal,
    Workspace,
    find_nodes,
)
from meshwright.partitioner.tactics.role_names import Patterns, RoleNames, role_names
from meshwright.partitioner.tactics.tactic import AxisTactic


def data_parallel(
    axis: str, inputs: Patterns = None, params: Patterns = None
) -> AxisTactic:
    """Shard the batch along a mesh axis: `data_parallel("data")`.

    before: f32[32, 8], unsharded        after: f32[32, 8], dim 0 along the axis

    inputs: pattern, or several, of the leaves that contain the batch; by default all
        except state, weights, PRNG keys and scalars.
    params: patterns of weights, where `docs/tactics.md` would not find them.
    The batch is dim 0 of the data, or dim 1 if a scan runs over dim 0. If sharding it
    leaves part of the matrix products unsharded, shards weights, or needs values
    gathered, the other dims of the data are tried. If none is better, the rows of the
    largest product are tried, since minibatches may be made inside the step. The dim
    that divides most of the FLOPs is taken. A warning says what it leaves unsharded.
    When the tactic is applied, it raises `TacticError` for an invalid pattern, and if
    there is nothing to shard.
    """
    names = role_names("data_parallel", params, inputs)
    cut_fn = partial(_cut_batch, names)
    return AxisTactic(f"data_parallel({axis!r}{names.options})", axis, cut_fn)


def _cut_batch(names: RoleNames, work: Workspace, axis: str, tactic: str) -> None:
    """Shard the batch of input leaves that match some patterns, or of all data."""
    leaves = _batch_leaves(work, names, tactic)
    num_refusals = len(work.refusals)
    seeds = _cut_best_dims(work, leaves, axis, tactic)
    if not any(work.is_cut(node, axis) for _, node, _ in seeds):
        why = "; ".join(map(str, work.refusals[num_refusals:])) or "it has no dims"
        raise TacticError(f"{tactic} cuts nothing: {why}")
    _note_whole(work, leaves, seeds, axis)
    note_uncut_work(work, axis, tactic, _advice(work, leaves, seeds, axis))


def _batch_leaves(work: Workspace, names: RoleNames, tactic: str) -> Leaves:
    """(path, node) of each leaf that may have the batch: no state, weight or PRNG key.

    If there is no other data, state such as a cache may have it.
    names: if they name inputs, the leaves that these patterns match instead.
    """
    roles = names.find_roles(work)
    if names.inputs:
        named = {p: n for glob in names.inputs for p, n in find_nodes(work, glob)}
        return [(path, n) for path, n in named.items() if work.value(n).shape]
    leaves = work.leaves(roles.data or roles.carried)
    if not leaves:
        shown = ", ".join(work.paths[:8])
        raise TacticError(
            f"{tactic} finds no data among the inputs: all are state, weights, PRNG "
            f"keys or scalars ({shown}, ...); name the data, as in "
            "data_parallel(axis, inputs='batch.**')"
        )
    return leaves


def _cut_best_dims(work: Workspace, leaves: Leaves, axis: str, tactic: str) -> Seeds:
    """Shard the dims of the data that divide most FLOPs, and return these dims.

    The dims of `guessed_batch` are tried first. They are taken if they look like a
    batch (`_Trial.is_clean`) and divide nearly all FLOPs, or if nothing is sharded,
    since then the axis size does not divide the batch. Otherwise other dims are tried.
    """
    start = work.mark()
    params = [node for _, node in work.leaves(find_roles(work).params)]
    uncut = [node for node in params if not work.is_cut(node, axis)]

    def trial_of(seeds: Seeds) -> _Trial:
        work.rollback(start)
        work.cut(seeds, axis, tactic)
        return _measured(work, axis, seeds, uncut, leaves)

    best = guessed_batch(work, leaves, axis)
    trial = trial_of(best)
    if trial.is_empty or (trial.is_clean and trial.share >= _ENOUGH):
        return best
    for candidates in (data_dims, product_rows):
        for seeds in candidates(work, leaves, axis):
            other = trial_of(seeds)
            if other.is_better(trial):
                best, trial = seeds, other
        if trial.is_clean and trial.share > _LITTLE:
            break
    trial_of(best)
    return best


_ENOUGH = 0.95
"""Share of the FLOPs from which a dim is taken at once; a batch mostly divides 1.0."""
_MORE = 0.1
"""Share of the FLOPs that another dim must divide beyond the guess to be taken."""
_LITTLE = 0.2
"""If a batch among the inputs divides at most this share, product rows are tried."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """The effect of sharding one candidate for the batch.

    share: the share of the FLOPs that is divided. is_clean: whether the candidate looks
        like a batch: it shards no weight, and no dim over which the first product sums,
        as tensor parallelism does, and needs no gather, as sharding time before a loop
        does. is_empty: whether nothing is sharded. inputs, ops: the data that is sharded,
        and the ops that count in `share`.
    """

    share: float
    is_clean: bool
    is_empty: bool
    inputs: frozenset[str]
    ops: frozenset[int]

    def is_better(self, other: "_Trial") -> bool:
        """Whether to prefer this candidate for the batch to another one.

        Not one that only leaves data and its ops whole. Two towers whose batches meet in
        one product, as in a contrastive loss, need one of the batches gathered there.
        """
        is_part = bool(self.inputs) and self.inputs < other.inputs
        if not self.is_clean or (is_part and not self.ops >= other.ops):
            return False
        more = 0.0 if not other.is_clean else _MORE
        return self.share >= other.share + more and self.share > 0


def _measured(
    work: Workspace, axis: str, seeds: Seeds, uncut: Sequence[Node], leaves: Leaves
) -> _Trial:
    """The effect of dims just sharded; uncut: parameters that were whole before."""
    cuts_weights = any(work.is_cut(node, axis) for node in uncut)
    return _Trial(
        cut_share(work, axis),
        not (cuts_weights or first_cut_sums(work, axis) or gathers(work, axis)),
        not any(work.is_cut(node, axis) for _, node, _ in seeds),
        frozenset(path for path, node in leaves if work.is_cut(node, axis)),
        cut_ops(work, axis),
    )


def _advice(work: Workspace, leaves: Leaves, seeds: Seeds, axis: str) -> str:
    """End of a warning: name data by `shard` if a leaf may have the batch, or a tag.

    Data that is whole comes first. A leaf of the type of a result may be a parameter, in
    a step without `donate_argnums`. Rows that a step makes, such as tokens sorted by
    experts, are no dim of its data.
    """
    results = {(atom.shape, atom.dtype) for atom in work.graph.program.outputs}
    asked = {path: dim for path, _, dim in seeds}
    advice = "name the batch by shard, or ops by cut"
    for path, node in sorted(leaves, key=lambda leaf: work.is_cut(leaf[1], axis)):
        value = work.value(node)
        others = [d for d in range(len(value.shape)) if d != asked.get(path)]
        if others and (value.shape, value.dtype) not in results:
            named = f"shard({{{path!r}: {others[0]}}}, axis={axis!r})"
            advice = f"if more of the data has a batch, name it, as in {named}"
            break
    made = f"mw.tag(x, 'rows') and shard({{'tag:rows': 0}}, axis={axis!r})"
    return f"{advice}; or rows that the step makes, by {made} before this tactic"


def _note_whole(work: Workspace, leaves: Leaves, seeds: Seeds, axis: str) -> None:
    """Add a refusal for each data leaf that the axis leaves unsharded, and why."""
    first, node, dim = seeds[0]
    batch, asked = work.value(node).shape[dim], {path for path, _, _ in seeds}
    for path, leaf in leaves:
        if path in asked or work.is_cut(leaf, axis):
            continue
        if node.input_position is None:
            why = f"the batch is made inside the step: dim {dim} of {first}"
        else:
            extent = work.value(leaf).shape[0]
            why = f"its dim 0 has {extent} elements, the batch has {batch}"
        work.refusals.append(Refusal(path, axis, why))
