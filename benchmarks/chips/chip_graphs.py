"""Graphs for multi-chip partitioning: forward passes of the zoo's programs, and BERT.

    python -m benchmarks chips chip_graphs FOLDER

writes a file for each graph, priced on the chips of mcm-36. Held-out graphs differ in
size from those for training, and some of their families are not trained on at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Options, benchmark, option
from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.graph.program_graph import program_graph
from meshwright.machine import load_machine
from meshwright.program.capture import capture
from tests.alpa.bert import BertLayer, Embeddings, Widths
from zoo import efficientnet, gns, gpt, lstm, mixer, moe, ranking, resnet, t5, unet, vit
from zoo.efficientnet_sizes import Config as EfficientConfig

Target = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


def forward(module: nn.Module, *inputs: Any, **options: Any) -> Any:
    """The function `(params, *inputs)` of a module, and its arguments as shapes."""
    init = partial(module.init, **options)
    params = jax.eval_shape(init, jax.random.key(0), *inputs)
    return partial(_apply, module, options), (params, *inputs)


def _apply(module: nn.Module, options: Any, params: Any, *inputs: Any) -> Any:
    return module.apply(params, *inputs, **options)


def _image(size: int, batch: int = 1) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch, size, size, 3), jnp.float32)


def _tokens(length: int, batch: int = 1) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch, length), jnp.int32)


def _vit(layers: int, width: int, size: int = 128) -> Any:
    config = vit.Config(layers, width, width // 64, 4 * width, 16, 1, size)
    return forward(vit.ViT(config), _image(size))


def _mixer(layers: int, width: int, size: int = 128) -> Any:
    config = mixer.Config(layers, width, width // 2, 4 * width, 16, 1, size)
    return forward(mixer.Mixer(config), _image(size))


def _gpt(layers: int, width: int, length: int = 128) -> Any:
    config = gpt.Config(layers, width, width // 64, 4 * width, 1024, length, 1)
    state = jax.eval_shape(partial(gpt.init, config), jax.random.key(0))
    return gpt.logits, (state.params, _tokens(length))


def _resnet(stages: tuple[int, ...], channels: int = 32, size: int = 128) -> Any:
    config = resnet.Config(stages, 1, channels, 1, size)
    return forward(resnet.ResNet(config, is_training=False), _image(size))


def _t5(layers: int, width: int, length: int = 64) -> Any:
    config = replace(t5.TINY, layers=layers, d_model=width)
    return forward(t5.T5(config), _tokens(length), _tokens(length))


def _moe(layers: int, width: int) -> Any:
    config = replace(moe.TINY, layers=layers, d_model=width, d_ff=4 * width, heads=4)
    return forward(moe.MoE(config), _tokens(64))


def _gns(steps: int, hidden: int) -> Any:
    config = replace(gns.TINY, steps=steps, hidden=hidden, latent=hidden)
    end = jax.ShapeDtypeStruct((config.edges,), jnp.int32)
    place = jax.ShapeDtypeStruct((config.nodes, gns.DIMS), jnp.float32)
    shape = (config.nodes, gns.DIMS * gns.HISTORY)
    nodes = {"position": place, "velocity": jax.ShapeDtypeStruct(shape, jnp.float32)}
    return forward(gns.Simulator(config), nodes, {"senders": end, "receivers": end})


def _unet(multipliers: tuple[int, ...], blocks: int) -> Any:
    config = unet.Config(32, 64, multipliers, blocks, heads=4, batch=1)
    time = jax.ShapeDtypeStruct((1,), jnp.int32)
    return forward(unet.UNet(config), _image(32), time)


def _efficientnet(width: float, depth: float, size: int = 128) -> Any:
    config = EfficientConfig(width, depth, size, 0.2)
    return forward(efficientnet.EfficientNet(config), _image(size), train=False)


def _ranking(hidden: tuple[int, ...]) -> Any:
    features = jax.ShapeDtypeStruct((1, 200, 136), jnp.float32)
    return forward(ranking.Scorer(hidden), features)


def _lstm(layers: int, units: int) -> Any:
    config = replace(lstm.TINY, layers=layers, units=units)
    return forward(lstm.LanguageModel(config), _tokens(32))


class Bert(nn.Module):
    """Devlin et al.'s encoder with its output over the words, without dropout."""

    widths: Widths
    layers: int
    vocab: int

    @nn.compact
    def __call__(self, words: Any, mask: Any, types: Any, positions: Any) -> Any:
        """Scores [B, S, V] of words [B, S]."""
        embed = Embeddings(self.vocab, 512, self.widths.hidden, 2, False)
        x = embed(words, types, positions)
        for i in range(self.layers):
            x = BertLayer(self.widths, False, name=f"layer_{i}")(x, mask)
        return x @ embed.table().T


def _bert(layers: int, width: int, length: int = 128) -> Any:
    inputs = [_tokens(length) for _ in range(4)]
    return forward(Bert(Widths(width, width // 64), layers, 8192), *inputs)


TRAINING: dict[str, Target] = {
    **{f"vit_{n}_{w}": partial(_vit, n, w) for n in (1, 2, 3, 5) for w in (192, 384)},
    **{
        f"mixer_{n}_{w}": partial(_mixer, n, w)
        for n in (2, 3, 4, 6, 9)
        for w in (128, 384)
    },
    **{
        f"gpt_{n}_{w}": partial(_gpt, n, w) for n in (1, 2, 3, 5, 7) for w in (128, 512)
    },
    **{f"gns_{n}_{w}": partial(_gns, n, w) for n in (1, 2, 4, 6) for w in (64, 256)},
    **{f"t5_{n}_{w}": partial(_t5, n, w) for n in (1, 2) for w in (128, 512)},
    **{f"moe_{n}_{w}": partial(_moe, n, w) for n in (2, 4) for w in (64, 256)},
    **{f"lstm_{n}_{w}": partial(_lstm, n, w) for n in (1, 3, 6) for w in (128, 512)},
    **{
        f"resnet_{'_'.join(map(str, n))}": partial(_resnet, n)
        for n in ((1, 1), (2, 2), (1, 2, 1), (2, 2, 2, 2), (3, 4, 6, 3))
    },
    **{f"ranking_{len(n)}": partial(_ranking, n) for n in ((512, 256), (512,) * 6)},
    **{f"unet_{b}": partial(_unet, (1, 2), b) for b in (1, 2)},
    **{f"efficientnet_{d}": partial(_efficientnet, 1.0, d) for d in (0.3, 0.6)},
}
"""Targets to train on, by name."""

HELD_OUT: dict[str, Target] = {
    "vit_4_256": partial(_vit, 4, 256),
    "vit_12_192": partial(_vit, 12, 192),
    "mixer_5_256": partial(_mixer, 5, 256),
    "mixer_12_512": partial(_mixer, 12, 512),
    "gpt_4_256": partial(_gpt, 4, 256),
    "gpt_10_256": partial(_gpt, 10, 256),
    "gns_3_128": partial(_gns, 3, 128),
    "gns_8_128": partial(_gns, 8, 128),
    "t5_3_256": partial(_t5, 3, 256),
    "moe_6_128": partial(_moe, 6, 128),
    "lstm_4_256": partial(_lstm, 4, 256),
    "resnet_1_3_2": partial(_resnet, (1, 3, 2)),
    "resnet_3_4_23_3": partial(_resnet, (3, 4, 23, 3)),
    "ranking_4": partial(_ranking, (1024, 512, 256, 128)),
    "bert_2_128": partial(_bert, 2, 128),
    "bert_4_256": partial(_bert, 4, 256),
    "bert_24_512": partial(_bert, 24, 512),
}
"""Targets to judge on, by name; no BERT is trained on."""


def graph_of(target: Target) -> ChipGraph:
    """The graph of a target on the chips of mcm-36."""
    fn, args = target()
    captured = capture(fn, args)
    weights = {
        i for i, path in enumerate(captured.paths) if "params" in path.split(".")
    }
    return program_graph(captured.program, load_machine("mcm-36"), weights)


def save_graph(graph: ChipGraph, path: Path) -> None:
    """Write a graph as an archive of arrays."""
    fields = {name: getattr(graph, name) for name in ChipGraph.__dataclass_fields__}
    np.savez_compressed(path, **fields)


def load_graph(path: Path) -> ChipGraph:
    """The graph that `save_graph` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        fields = dict(arrays)
    return ChipGraph(tuple(fields.pop("names").tolist()), **fields)


def load_folder(folder: Path) -> dict[str, ChipGraph]:
    """All graphs of a folder, by name."""
    return {path.stem: load_graph(path) for path in sorted(folder.glob("*.npz"))}


@benchmark(option("folder", type=Path))
def main(chosen: Options) -> None:
    """Write the graphs that are not in the folder yet, and print their sizes."""
    for name, line in _written(chosen.folder):
        print(f"{name:40} {line}", flush=True)


def _written(folder: Path) -> Iterator[tuple[str, str]]:
    for part, targets in (("training", TRAINING), ("held_out", HELD_OUT)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for name, target in targets.items():
            path = folder / part / f"{name}.npz"
            if path.exists():
                continue
            graph = graph_of(target)
            save_graph(graph, path)
            weights = graph.weight_bytes[np.unique(graph.weight_reads[:, 0])].sum()
            yield (
                f"{part} {name}",
                f"{graph.num_ops} ops, {graph.seconds.sum():.2e} s, {weights / 1e6:.1f} MB",
            )


if __name__ == "__main__":
    main()
