"""A space of decoders for accelerators, as data for `meshwright nas search`.

The choices are the layers, heads and key-value heads, the width of a head, the ratio and
kind of the MLP (gated or not, its activation, squared ReLU among them), the norm, and the
kind of block: plain, with a convolution after q, k and v, or Primer's. Primer and Primer-EZ
(So et al., NeurIPS 2021) are points, in `POINTS`.

    space = sequence_space(d_model=64, d_head=nas.Choice(8, 16, 32))
    evaluate = nas.Trained(partial(build, vocab=256), data, machine="tpu-v5e")

Any part can be replaced by name, also by a plain value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meshwright.codesign import nas
from zoo.decoder import Config, Decoder
from zoo.primer import SIZES, model_of

BLOCKS = {"plain": "gpt", "convolved": "primer_ez", "primer": "primer"}
"""Kinds of block, by what `zoo.primer` calls them."""

SEQUENCE: Mapping[str, Any] = {
    "layers": nas.Range(1, 48),
    "d_model": nas.Range(16, 4096, step=16),
    "heads": nas.Range(1, 64),
    "d_head": nas.Choice(4, 8, 16, 32, 64, 128),
    "queries_per_key": nas.Choice(1, 2, 4, 8),
    "ffn_ratio": nas.Range(0.5, 8.0, step=0.5),
    "gated": nas.Choice(False, True),
    "activation": nas.Choice("relu", "gelu", "silu", "squared_relu"),
    "norm": nas.Choice("layer", "rms"),
    "block": nas.Choice(*BLOCKS),
}
"""Parts of a decoder.

queries_per_key: heads that share a key-value head (grouped-query attention).
block: "convolved" is plain with a convolution over time after q, k and v. In "primer" q and
    k share a projection, and the norm is Primer's own.
"""


def sequence_space(
    where: Iterable[Callable[[Any], bool]] = (), **parts: Any
) -> nas.Space:
    """The space of decoders; `parts` replace those of `SEQUENCE`.

    where: conditions besides that a decoder can be built.
    """
    return nas.Space({**SEQUENCE, **parts}, (can_be_built, *where))


def config_of(candidate: Mapping[str, Any], **task: Any) -> Config:
    """The decoder of a candidate; `ValueError` if it cannot be built.

    task: fields of `Config` that are not chosen, such as `vocab` and `sequence`.
    """
    heads, shared = candidate["heads"], candidate["queries_per_key"]
    if heads % shared:
        raise ValueError(f"{shared} queries per key do not divide {heads} heads")
    if candidate["block"] == "primer" and (shared > 1 or candidate["norm"] != "layer"):
        raise ValueError("Primer's block has a key for each query, and its own norm")
    names = ("layers", "d_model", "heads", "d_head", "gated", "activation", "norm")
    chosen = {name: candidate[name] for name in names}
    chosen["d_ff"] = max(8, round(candidate["ffn_ratio"] * candidate["d_model"]))
    chosen["kv_heads"] = heads // shared if shared > 1 else None
    defaults = {"vocab": 256, "sequence": 64, "batch": 1, "tied": True}
    return Config(**{**defaults, **task, **chosen})


def can_be_built(candidate: Mapping[str, Any]) -> bool:
    """Whether the parts of a candidate fit each other."""
    try:
        config_of(candidate)
    except ValueError:
        return False
    return True


def build(candidate: Mapping[str, Any], **task: Any) -> Decoder:
    """The flax module of a candidate, as `nas.Trained` wants it; see `config_of`."""
    return model_of(BLOCKS[candidate["block"]], config_of(candidate, **task))


def candidate_of(config: Config, block: str) -> dict[str, Any]:
    """The candidate of a decoder; the inverse of `config_of`."""
    names = ("layers", "d_model", "heads", "gated", "activation", "norm")
    return {
        **{name: getattr(config, name) for name in names},
        "d_head": config.head_width,
        "queries_per_key": config.heads // config.num_kv_heads,
        "ffn_ratio": config.d_ff / config.d_model,
        "block": block,
    }


PUBLISHED = {
    **SIZES,
    **{name.replace("primer", "primer_ez"): size for name, size in SIZES.items()},
}
"""Primer's and Primer-EZ's sizes."""

POINTS = {
    name: candidate_of(config, "convolved" if "_ez" in name else "primer")
    for name, config in PUBLISHED.items()
}
"""The published decoders as candidates."""
