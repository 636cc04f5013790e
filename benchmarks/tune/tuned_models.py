"""Models made of blocks whose layouts were tuned alone: the share of the gain they keep.

    python -m benchmarks tune tuned_models --chip tpu-v5e [MODEL ...]

A model's values get the layouts of the block's values of the same source line, part and
type. The result of a block is read from that of `tune_layouts.py`. Needs the TPU compiler
(`meshwright[tpu]`), and no TPU.
"""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.tune.layout_blocks import BF16, Block, attention_mlp, window_attention
from benchmarks.tune.tune_layouts import RESULTS, read
from meshwright.features.tune.compiler_server.server import CompilerServer, host_of
from meshwright.features.tune.layouts.compiler_judge import EstimateJudge
from meshwright.features.tune.layouts.kernel_work import rates_of
from meshwright.features.tune.layouts.problem import LayoutChoice, question_of
from meshwright.features.tune.layouts.sites import find_sites
from meshwright.features.tune.tune_layouts import machine_of, on_one_device, tuned_step


def swin(depth=3):
    """Window attention with residuals, of equal blocks."""
    block = window_attention()

    def forward(params, x):
        for p in params:
            x = x + block.forward(p, x)
        return x

    return block, depth, Block(forward, [block.params] * depth, block.inputs)


def language_model(depth=3, words=4096):
    """An embedding, equal blocks of attention and MLP, and a head with its loss."""
    block = attention_mlp()
    (x,) = block.inputs

    def forward(params, tokens):
        y = params["table"][tokens]
        for p in params["blocks"]:
            y = block.forward(p, y)
        logits = (y @ params["table"].T).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)

    table = jax.ShapeDtypeStruct((words, x.shape[-1]), BF16)
    params = {"table": table, "blocks": [block.params] * depth}
    tokens = jax.ShapeDtypeStruct(x.shape[:-1], jnp.int32)
    return block, depth, Block(forward, params, (tokens,), False)


MODELS = {
    "swin": ("window_attention", swin),
    "language_model": ("attention_mlp", language_model),
}


def sites_of(block):
    """The lowered program of a block or model, and its sites by name."""
    decided = on_one_device(*block.step())
    found = find_sites(decided.lowered.program, decided.captured.paths, most=1000)
    return decided, {site.name: site for site in found}


def transferred(layouts, block_sites, sites):
    """Choices for the sites of a model that are alike those of a tuned block."""

    def part(site):
        return site.source, site.type, site.role, site.dims

    known = {part(block_sites[each["site"]]): each for each in layouts}
    found = []
    for site in sites.values():
        each = known.get(part(site))
        if each is not None:
            with_twin = each["with_twin"] and bool(site.twins)
            found.append(LayoutChoice(site.name, tuple(each["order"]), with_twin))
    return tuple(found)


def judge_model(name, chip, tuned_block):
    """Figures of a model, with default layouts, AUTO arguments, and those of its block."""
    block, depth, model = MODELS[name][1]()
    _, block_sites = sites_of(block)
    decided, sites = sites_of(model)
    state = transferred(tuned_block["layouts"], block_sites, sites)
    print(name, len(state), "sites of", len(sites), flush=True)
    machine = machine_of(chip, 1)
    with CompilerServer(host_of(machine), timeout_s=3600) as server:
        judge = EstimateJudge(server, tuned_step(decided), rates_of(machine))
        asked = partial(question_of, decided.lowered.program, sites)
        default = judge.judge(asked((), False))
        auto = judge.judge(asked((), True))
        is_auto = auto.cost < default.cost
        tuned = judge.judge(asked(state, is_auto))
    for verdict in (default, auto, tuned):
        if verdict.error:
            raise SystemExit(f"{name} on {chip}: {verdict.error}")
    base = auto if is_auto else default
    of_block = tuned_block[tuned_block["baseline"]]["cost"] - tuned_block["charged"]
    figures = {
        "default": default.cost,
        "auto": auto.cost,
        "tuned": tuned.cost,
        "gain": base.cost / tuned.cost,
        "kept": (base.cost - tuned.cost) / (depth * of_block),
        "sites": len(state),
    }
    for name, verdict in (("base", base), ("tuned", tuned)):
        figures[f"{name}_bytes_accessed"] = verdict.bytes_accessed
        figures[f"{name}_unestimated_bytes"] = verdict.unestimated_bytes
        figures[f"{name}_temp_bytes"] = verdict.temp_bytes
    return figures


@benchmark(
    option("models", nargs="*", default=[]),
    option("--chip", default="tpu-v5e"),
    option("--blocks", type=Path, default=RESULTS),
    out=STORED,
)
def main(options: Options):
    blocks = read(options.blocks)
    for name in options.models or MODELS:
        key = f"{name} {options.chip}"
        if key not in options.stored({}):
            block = blocks[f"{MODELS[name][0]} {options.chip}"]
            figures = judge_model(name, options.chip, block)
            print(key, json.dumps(figures, indent=1), flush=True)
            known = {**options.stored({}), key: figures}
            options.save(known)


if __name__ == "__main__":
    main()
