"""Dense language models at the sizes that papers train: GPT, Llama, MaxText's runs.

All are `zoo.decoder` with other numbers:

- `gpt_*`: table 2.1 of Brown et al., "Language Models are Few-Shot Learners", NeurIPS
  2020. The table prints 24 heads of 128 at width 2048, which would be 1.5 billion
  parameters, and width 5140 for 40 heads of 128: here 16 heads and 5120, which give the
  1.3 and 13 billion of the same rows. Attention is dense in every layer; theirs is
  sparse in every other.
- `alpa_*`: the GPTs of Zheng et al., "Alpa: Automating Inter- and Intra-Operator
  Parallelism for Distributed Deep Learning", OSDI 2022.
- `llama2_*`: Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023.
- `llama3_*`: Llama Team, "The Llama 3 Herd of Models", 2024, table 3; the vocabulary is
  that of the released models.
- `maxtext_*`: the shapes of MaxText's published runs on TPU v5e and v5p, one slice each
  (AI-Hypercomputer/maxtext, configs/v5e and v5p). They are made from one of 1 billion
  parameters by doubling heads and MLP, width and layers in turn, and named by the factor:
  `maxtext_v5p_1024b` has 998 billion.

Layers are scanned; `*_unrolled` are the same models with every layer for itself. bfloat16
computes, with parameters and optimizer in 32 bits. Where a paper does not say what is
recomputed in the backward pass, it is everything from 6 billion parameters up. Batches
of the GPTs are the tokens of the table over sequences of 2048; those of Llama 3 the last
of the three that the 405B was trained with.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax

import meshwright as mw
from zoo.decoder import Config, Decoder, scores, shapes, start, train_step
from zoo.text import batches, load_text
from zoo.training import run
from zoo.workload import Curve, Published, Workload, published_parameters, sized

GPT = partial(
    Config, norm="layer", positions="learned", activation="gelu", gated=False, bias=True,
    tied=True, dtype="bfloat16",
)  # fmt: skip
BROWN = partial(GPT, vocab=50_257, sequence=2048)
ALPA = partial(GPT, vocab=51_200, sequence=1024, batch=1024)
LLAMA = partial(Config, dtype="bfloat16", remat="full")
LLAMA2 = partial(LLAMA, vocab=32_000, sequence=4096, batch=1024)
LLAMA3 = partial(
    LLAMA, vocab=128_256, sequence=8192, batch=2048, kv_heads=8, rotary_base=5e5
)


def scaled(scale: int, batch: int, remat: str) -> Config:
    """MaxText's base model, doubled log2(`scale`) times.

    Of three doublings in a row the first is of heads and MLP, the second of the width,
    the third of the layers.
    """
    doublings = scale.bit_length() - 1
    if scale < 1 or 2**doublings != scale:
        raise ValueError(f"a scale is a power of two, not {scale}")
    layers, wide, heads = doublings // 3, (doublings + 1) // 3, (doublings + 2) // 3
    return LLAMA(
        16 << layers, 2048 << wide, 16 << heads, 7168 << heads, 32_000, d_head=128,
        sequence=2048, batch=batch, remat=remat, rate=3e-5, attention_block=512,
        causal="kernel", one_hot=True,
    )  # fmt: skip


SIZES = {
    "gpt_125m": BROWN(12, 768, 12, 3072, batch=256, rate=6e-4),
    "gpt_350m": BROWN(24, 1024, 16, 4096, batch=256, rate=3e-4),
    "gpt_760m": BROWN(24, 1536, 16, 6144, batch=256, rate=2.5e-4),
    "gpt_1_3b": BROWN(24, 2048, 16, 8192, batch=512, rate=2e-4),
    "gpt_2_7b": BROWN(32, 2560, 32, 10_240, batch=512, rate=1.6e-4),
    "gpt_6_7b": BROWN(32, 4096, 32, 16_384, batch=1024, rate=1.2e-4, remat="full"),
    "gpt_13b": BROWN(40, 5120, 40, 20_480, batch=1024, rate=1e-4, remat="full"),
    "gpt_175b": BROWN(96, 12_288, 96, 49_152, batch=1536, rate=6e-5, remat="full"),
    "alpa_350m": ALPA(24, 1024, 16, 4096),
    "alpa_760m": ALPA(24, 1536, 16, 6144),
    "alpa_1_3b": ALPA(24, 2048, 32, 8192),
    "alpa_2_6b": ALPA(32, 2560, 32, 10_240),
    "alpa_6_7b": ALPA(32, 4096, 32, 16_384, remat="full"),
    "alpa_15b": ALPA(48, 5120, 40, 20_480, remat="full"),
    "alpa_39b": ALPA(48, 8192, 64, 32_768, remat="full"),
    "llama2_7b": LLAMA2(32, 4096, 32, 11_008),
    "llama2_13b": LLAMA2(40, 5120, 40, 13_824),
    "llama2_70b": LLAMA2(80, 8192, 64, 28_672, kv_heads=8, rate=1.5e-4),
    "llama3_8b": LLAMA3(32, 4096, 32, 14_336),
    "llama3_70b": LLAMA3(80, 8192, 64, 28_672, rate=1.5e-4),
    "llama3_405b": LLAMA3(126, 16_384, 128, 53_248, rate=8e-5),
    # Chips in a slice times sequences on each; "minimal" there is "dots" here.
    "maxtext_v5e_16b": scaled(16, batch=256 * 6, remat="full"),
    "maxtext_v5e_32b": scaled(32, batch=256 * 4, remat="full"),
    "maxtext_v5e_64b": scaled(64, batch=256 * 2, remat="full"),
    "maxtext_v5e_128b": scaled(128, batch=256, remat="dots"),
    "maxtext_v5p_32b": scaled(32, batch=64 * 6, remat="dots"),
    "maxtext_v5p_64b": scaled(64, batch=64 * 3, remat="dots"),
    "maxtext_v5p_128b": scaled(128, batch=128, remat="dots"),
    "maxtext_v5p_256b": scaled(256, batch=512, remat="dots"),
    "maxtext_v5p_512b": scaled(512, batch=512 * 2, remat="full"),
    "maxtext_v5p_1024b": scaled(1024, batch=1024 * 2, remat="full"),
}
UNROLLED = ("gpt_125m", "gpt_175b")
SIZES |= {f"{name}_unrolled": replace(SIZES[name], scan=False) for name in UNROLLED}

TINY = Config(2, 64, 8, 192, 256, 64, 16, kv_heads=4, remat="dots", rate=5e-3)
TINY_GPT = GPT(2, 64, 8, 256, 256, 64, 16, dtype="float32", scan=False, rate=5e-3)


def learn(config: Config, seed: int, steps: int) -> Curve:
    """The loss of each step of `config` on bytes of text."""
    model = Decoder(config)
    state = jax.jit(partial(start, model))(jax.random.key(seed))
    text = batches(load_text(), config.batch, config.sequence, seed)
    return run(train_step(model), state, text, steps)


def train(seed: int, steps: int) -> Curve:
    """The loss of each step of the small Llama on bytes of text."""
    return learn(TINY, seed, steps)


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    model = Decoder(config)
    return train_step(model), shapes(model)


def _small(config: Config) -> tuple[Any, tuple[Any, ...]]:
    model = Decoder(config)
    state = jax.jit(partial(start, model))(jax.random.key(0))
    batch = next(batches(load_text(), config.batch, config.sequence, seed=0))
    return train_step(model), (state, batch)


def tiny():
    """A Llama of 0.1 million parameters, scanned, and bytes of real text, as arrays."""
    return _small(TINY)


def tiny_gpt():
    """A GPT of 0.1 million parameters, unrolled, and bytes of real text, as arrays."""
    return _small(TINY_GPT)


def _forward(config: Config) -> tuple[Any, tuple[Any, ...]]:
    _, (state, batch) = _small(config)
    return partial(scores, Decoder(config)), (state.params, batch["inputs"][:1])


def tiny_forward():
    """The scores of what follows each byte of a text, by the small Llama."""
    return _forward(TINY)


def tiny_gpt_forward():
    """The scores of what follows each byte of a text, by the small GPT."""
    return _forward(TINY_GPT)


inference = {"tiny": tiny_forward, "tiny_gpt": tiny_gpt_forward}


targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.**")
MEGATRON = mw.megatron("model", vocabulary=False)
VOCAB = mw.shard({"state.params.embedding.embedding": 0}, axis="model")

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp+megatron": [DP, MEGATRON],
    "dp+megatron+z2": [DP, MEGATRON, mw.zero(2, "data")],
    "dp+megatron+z3": [DP, MEGATRON, mw.zero(3, "data")],
    "dp+megatron+vocab+z3": [DP, MEGATRON, VOCAB, mw.zero(3, "data")],
    "dp+megatron+sp+z3": [
        DP, MEGATRON, mw.sequence_parallel("model"), mw.zero(3, "data"),
    ],
}  # fmt: skip


def _published(name: str, billions: float, source: str, within: float) -> Published:
    return published_parameters(name, billions * 1e9, targets[name], source, within)


_NAMED = 0.03
"""Of sizes that are only named: 15B of Alpa has 15.4, and MaxText names factors."""

_SOURCES = {
    "gpt": ("Brown et al., 2020, table 2.1", 0.02),
    "alpa": ("Zheng et al., 2022, table of models; named so", _NAMED),
    "llama2": ("Touvron et al., 2023, counted in the released weights", 0.02),
    "llama3": ("Llama Team, 2024; named so", 0.02),
    "maxtext": ("MaxText, configs/v5e and v5p; named so", _NAMED),
}

_BILLIONS = {
    "gpt_125m": 0.125, "gpt_350m": 0.35, "gpt_760m": 0.76, "gpt_1_3b": 1.3,
    "gpt_2_7b": 2.7, "gpt_6_7b": 6.7, "gpt_13b": 13, "gpt_175b": 175,
    "gpt_175b_unrolled": 175,
    "alpa_350m": 0.35, "alpa_760m": 0.76, "alpa_1_3b": 1.3, "alpa_2_6b": 2.6,
    "alpa_6_7b": 6.7, "alpa_15b": 15, "alpa_39b": 39,
    "llama2_7b": 6.74, "llama2_13b": 13.0, "llama2_70b": 69.0,
    "llama3_8b": 8, "llama3_70b": 70, "llama3_405b": 405,
    "maxtext_v5e_16b": 16, "maxtext_v5e_32b": 32, "maxtext_v5e_64b": 64,
    "maxtext_v5e_128b": 128, "maxtext_v5p_256b": 256, "maxtext_v5p_512b": 512,
    "maxtext_v5p_1024b": 1024,
}  # fmt: skip

workload = Workload(
    name="llm",
    title="GPT, Llama and MaxText's shapes",
    paper="Brown et al., Language Models are Few-Shot Learners, NeurIPS 2020; "
    "Touvron et al., Llama 2, 2023",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=200,
    schedules=schedules,
    best="dp+megatron+z3",
    published=tuple(
        _published(name, billions, *_SOURCES[name.split("_")[0]])
        for name, billions in _BILLIONS.items()
    ),
)
