"""Layouts of a decoder's inference: which devices hold, gather and compute what.

Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023. A weight [E, F] is
stored sharded by the first axis along E (d_model) and by the others along F (d_ff or
heads). Weight-stationary layouts move activations to the weights. Weight-gathered
layouts shard the tokens, and gather each weight where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.structure.decoder import (
    Decoder,
    is_large,
    keep_in_place,
    other_parameters,
)
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.structure.products import (
    Seed,
    find_products,
    follows_attention,
    multiplies_data,
)
from meshwright.partitioner.structure.views import dim_of
from meshwright.partitioner.structure.vocabulary.cut_vocabulary import cut_vocabulary
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.data_parallel import data_parallel
from meshwright.partitioner.tactics.megatron import cut_pairs
from meshwright.partitioner.tactics.role_names import (
    NO_NAMES,
    Patterns,
    RoleNames,
    role_names,
)
from meshwright.partitioner.tactics.tactic import TacticKind, as_code

_STATIONARY_1D = "weight_stationary_1d"

_TOKEN_AXES = {
    _STATIONARY_1D: 0,
    "weight_stationary_2d": 0,
    "weight_gathered_x": 1,
    "weight_gathered_xy": 2,
    "weight_gathered_xyz": 3,
}
"""Number of mesh axes that shard the tokens, by layout of the feed-forward layer.

The names are those of Pope et al.
"""

_MOST_MOVED = 2.0
"""Largest all-reduce after a pair of products, as a multiple of the first's result.

The heads of PaLM 540B have 0.89 times as many elements as its model dim.
"""


@dataclass(frozen=True, slots=True, repr=False)
class InferenceLayout:
    """Shard the weights, tokens and attention of a decoder as a layout says.

    before: x[B, E] @ up[E, F], gelu, @ down[F, E], all unsharded
    after weight-stationary 2D: weights sharded on E along axes[0], on F along the rest
    """

    layout: str
    axes: tuple[str, ...]
    attention: str = "heads"
    vocabulary: bool = True
    names: RoleNames = NO_NAMES
    kind = TacticKind.STRATEGY
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Shard tokens, then weights on E, then on F, or raise `TacticError`."""
        for axis in self.axes:
            work.mesh.require(axis)
        self.names.find_roles(work)
        is_flat = self.layout == _STATIONARY_1D
        outer = () if is_flat else self.axes[:1]
        inner = self.axes if is_flat else self.axes[1:]
        by_heads = self.attention == "heads"
        axis = (*inner, *self.axes)[0]
        # Tokens that are sharded along an axis would gather a table along it.
        has_words = self.vocabulary and not _TOKEN_AXES[self.layout]
        decoder = _find_decoder(work, axis, str(self), by_heads, has_words)
        by_batch = [] if by_heads else _batch_seeds(work, self.axes[0])
        # Whole in every layout, so that all layouts store the same weights.
        work.block(decoder.vectors, self.axes)
        token_axes = self.axes[: _TOKEN_AXES[self.layout]]
        for product in decoder.large if token_axes else ():
            keep_in_place(work, product, self.axes, str(self))
        for axis in token_axes:
            data_parallel(axis).apply(work)
        # What is gathered first is cut last.
        for axis in outer:
            work.cut([*decoder.wide, *by_batch], axis, str(self))
        for axis in reversed(inner):
            work.cut([*decoder.inner, *by_batch], axis, str(self))
        for axis in () if _TOKEN_AXES[self.layout] else outer:
            work.cut(decoder.hidden, axis, str(self))

    def __str__(self) -> str:
        options = "" if self.attention == "heads" else f", attention={self.attention!r}"
        options += "" if self.vocabulary else ", vocabulary=False"
        options += self.names.options
        return f"inference({self.layout!r}, {list(self.axes)}{options})"

    def __repr__(self) -> str:
        return as_code(self)


def inference(
    layout: str,
    axes: str | Sequence[str],
    *,
    attention: str = "heads",
    vocabulary: bool = True,
    params: Patterns = None,
    inputs: Patterns = None,
) -> InferenceLayout:
    """Lay a decoder out for inference: `inference("weight_stationary_2d", ["x", "y"])`.

    layout: "weight_stationary_1d" shards weights on d_ff and heads alone,
        "weight_stationary_2d" also on d_model, along the first axis.
        "weight_gathered_x", "weight_gathered_xy" and "weight_gathered_xyz" store
        weights as the 2-D layout, shard the tokens along the first one, two or three
        axes, and gather each weight along these where it is used.
    axes: mesh axes, the one for d_model first.
    attention: whether attention is sharded by "heads" or by "batch". Multi-query
        attention has one head of keys and values, which sharding by heads keeps on
        every device; by batch, each device has the cache of its own sequences.
    vocabulary: whether a weight-stationary layout also shards the last product and the
        table of embeddings along the vocabulary, on the axes of d_ff.
    params, inputs: patterns of weights and of data, where `docs/tactics.md` would not find
        them.
    When it is applied, it raises `TacticError` if no pair of products is found.
    """
    if layout not in _TOKEN_AXES:
        raise TacticError(f"no layout {layout!r}; there are {', '.join(_TOKEN_AXES)}")
    if attention not in ("heads", "batch"):
        raise TacticError(f"attention is {attention!r}; wanted 'heads' or 'batch'")
    along = (axes,) if isinstance(axes, str) else tuple(axes)
    least = max(_TOKEN_AXES[layout], 1 if layout == _STATIONARY_1D else 2)
    if len(along) < least or len(set(along)) < len(along):
        raise TacticError(
            f"{layout} got axes {list(along)}; wanted at least {least} different ones"
        )
    names = role_names("inference", params, inputs)
    return InferenceLayout(layout, along, attention, vocabulary, names)


def _find_decoder(
    work: Workspace, axis: str, tactic: str, by_heads: bool, with_vocabulary: bool
) -> Decoder:
    """The weight dims that Megatron would shard, and the other dims of all weights.

    by_heads: whether the results of attention are sharded by heads, too.
    """
    roles, products, mark = find_roles(work), find_products(work), work.mark()
    cut_pairs(work, axis, tactic, _MOST_MOVED, with_vocabulary=False)
    if with_vocabulary:
        cut_vocabulary(work, products, axis, tactic)
    cut = _cut_dims(work, axis)
    work.rollback(mark)
    others = other_parameters(work, roles, products)
    decoder = Decoder([], [], [], [], [leaf for leaf in others if leaf[0] not in cut])
    decoder.inner.extend((*leaf, cut[leaf[0]]) for leaf in others if leaf[0] in cut)
    for product in products:
        leaves = {f: product.leaf(work, f) for f in (*product.summed, *product.free)}
        own = [f for f, s in leaves.items() if s is not None and cut.get(s[0]) == s[2]]
        is_row = any(f in product.summed for f in own)
        decoder.inner.extend(product.seeds(work, own))
        rest = product.free if is_row else product.summed
        decoder.wide.extend(product.seeds(work, rest))
        if not own and is_large(work, product):
            decoder.large.append(product)
        value, dims = product.activation
        if is_row and (by_heads or not follows_attention(work, roles, value)):
            node = work.graph.nodes[work.graph.producer[value]]
            decoder.hidden.extend(
                (str(node.source), node, dim)
                for dim, factors in enumerate(dims)
                if {*own} & {*factors}
            )
    return decoder


def _cut_dims(work: Workspace, axis: str) -> dict[str, int]:
    """The dim of each input that an axis cuts."""
    cut: dict[str, int] = {}
    for path, node in work.leaves(range(len(work.paths))):
        factors = {work.state.factor_of[node.index].get(a) for a in work.sub_axes[axis]}
        for dim, own in enumerate(node.outs[0][1]):
            if factors & {*own}:
                cut[path] = dim
    return cut


def _batch_seeds(work: Workspace, axis: str) -> list[Seed]:
    """Dims that shard products of activations with each other by batch.

    axis: the mesh axis for the trial that finds the batch.
    """
    mark = work.mark()
    data_parallel(axis).apply(work)
    state, roles = work.state, find_roles(work)
    seeds: list[Seed] = []
    for node in work.graph.nodes:
        factor = state.factor_of[node.index].get(work.sub_axes[axis][0])
        if factor is None or not multiplies_data(node, roles):
            continue
        dim = dim_of(node.outs[0][1], factor)
        if dim is not None:
            seeds.append((node.label, node, dim))
    work.rollback(mark)
    return seeds
