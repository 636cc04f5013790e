"""Steps of models that are not in the zoo, such as a stranger might bring.

They test predictions of memory blind: all were written before anybody saw what a compiler
makes of them. docs/tpu.md has the results and the rules that they led to. Each of the sets
`first` to `fourth` was written after rules had been found on the zoo and on the sets before
it; the author of `fourth` had seen neither rules nor results.
"""

from __future__ import annotations

from collections.abc import Callable

import meshwright as mw
from benchmarks.strangers.adversarial import vqgan
from benchmarks.strangers.alignment import grpo
from benchmarks.strangers.attending import chunked, conformer, dit, gqa
from benchmarks.strangers.control import drq
from benchmarks.strangers.detection import detr
from benchmarks.strangers.diffusion import unet_diff
from benchmarks.strangers.distillation import distil
from benchmarks.strangers.experts import scattered
from benchmarks.strangers.fields import nerf
from benchmarks.strangers.folding import evoformer
from benchmarks.strangers.gated import gla
from benchmarks.strangers.gpt import lora, muon
from benchmarks.strangers.language import deepseek, llama_scan
from benchmarks.strangers.masked import bert
from benchmarks.strangers.molecules import forces
from benchmarks.strangers.networks import clip, convnext, dlrm, gru, sage, vae
from benchmarks.strangers.operators import fno
from benchmarks.strangers.prompts import prefill
from benchmarks.strangers.recurrent import mamba, ppo
from benchmarks.strangers.serving import decode
from benchmarks.strangers.shifted import swin
from benchmarks.strangers.speculation import speculative
from benchmarks.strangers.speech import whisper
from benchmarks.strangers.step import Target
from benchmarks.strangers.translation import seq2seq
from benchmarks.strangers.video import latte
from benchmarks.strangers.vision import mae, perceiver
from benchmarks.strangers.vocoder import hifigan
from benchmarks.strangers.windowed import gemma

Targets = dict[str, Callable[[], Target]]

first: Targets = {
    "dit": dit, "gqa": gqa, "gru": gru, "convnext": convnext, "dlrm": dlrm,
    "conformer": conformer, "vae": vae, "sage": sage, "chunked": chunked, "clip": clip,
}  # fmt: skip

second: Targets = {
    "mamba": mamba, "deepseek": deepseek, "llama_scan": llama_scan, "mae": mae,
    "muon": muon, "lora": lora, "perceiver": perceiver, "ppo": ppo, "decode": decode,
    "unet_diff": unet_diff,
}  # fmt: skip

third: Targets = {
    "seq2seq": seq2seq, "whisper": whisper, "drq": drq, "scattered": scattered,
    "prefill": prefill, "forces": forces, "nerf": nerf, "distil": distil,
    "vqgan": vqgan, "bert": bert,
}  # fmt: skip

fourth: Targets = {
    "gemma": gemma, "evoformer": evoformer, "swin": swin, "gla": gla, "grpo": grpo,
    "detr": detr, "hifigan": hifigan, "fno": fno, "speculative": speculative,
    "latte": latte,
}  # fmt: skip

schedules = {
    "dp": [mw.data_parallel("data")],
    "fsdp": [mw.data_parallel("data"), mw.fsdp("data")],
}
