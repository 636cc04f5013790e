"""The models whose found pipelines are built and run, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import optax

from tests.features.pipeline.found.images import (
    adversaries,
    autoencoder,
    averaged,
    mixture,
    pair,
    resnet,
    unet,
)
from tests.features.pipeline.found.libraries import (
    equinox_lstm,
    equinox_transformer,
    haiku_mlp,
    linen_transformer,
    nnx_mlp,
    nnx_transformer,
)
from tests.features.pipeline.found.sequences import decoder, encoder_decoder, recurrent
from tests.features.pipeline.found.training import Target

_DOTS = "dots_with_no_batch_dims_saveable"
_PARTS = optax.multi_transform(
    {"emb": optax.sgd(0.1), "rest": optax.adamw(1e-2)},
    lambda params: {name: "emb" if name == "emb" else "rest" for name in params},
)

MODELS: dict[str, Callable[[], Target]] = {
    "scanned decoder": partial(decoder, True),
    "scanned decoder, remat, bfloat16": partial(
        decoder, True, remat="all", dtype="bfloat16"
    ),
    "scanned decoder, products kept, adamw": partial(
        decoder, True, remat=_DOTS, optimizer=optax.adamw(1e-2)
    ),
    "scanned decoder, head of its own, lion": partial(
        decoder, True, is_tied=False, optimizer=optax.lion(1e-2)
    ),
    "scanned decoder, frozen embedding": partial(decoder, True, frozen="embedding"),
    "scanned decoder, adapters": partial(
        decoder, True, frozen="adapters", optimizer=optax.adam(1e-2)
    ),
    "scanned decoder of 6 layers, adafactor": partial(
        decoder, True, 6, optimizer=optax.adafactor(1e-2)
    ),
    "scanned decoder, clipped, two optimizers": partial(
        decoder, True, optimizer=optax.chain(optax.clip_by_global_norm(1.0), _PARTS)
    ),
    "listed decoder": partial(decoder, False),
    "listed decoder, remat, adam": partial(
        decoder, False, remat="all", optimizer=optax.adam(1e-2)
    ),
    "listed decoder, frozen layers": partial(decoder, False, frozen="layers"),
    "listed decoder, momentum": partial(
        decoder, False, is_gated=False, optimizer=optax.sgd(0.1, momentum=0.9)
    ),
    "listed decoder of 3 layers, lamb": partial(
        decoder, False, 3, is_tied=False, optimizer=optax.lamb(1e-2)
    ),
    "scanned encoder-decoder": partial(encoder_decoder, True),
    "scanned encoder-decoder, remat, adam": partial(
        encoder_decoder, True, remat=True, optimizer=optax.adam(1e-2)
    ),
    "listed encoder-decoder, untied": partial(encoder_decoder, False, is_shared=False),
    "listed encoder-decoder, adamw": partial(
        encoder_decoder, False, 3, optimizer=optax.adamw(1e-2)
    ),
    "u-net": partial(unet),
    "u-net of three levels, added skips": partial(unet, 3, joins="add"),
    "denoising u-net, adam": partial(unet, has_time=True, optimizer=optax.adam(1e-2)),
    "u-net, remat, clipped": partial(
        unet,
        remat=True,
        optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    ),
    "u-net without norms": partial(unet, has_norm=False),
    "listed lstm": partial(recurrent, "lstm"),
    "scanned lstm, adam": partial(
        recurrent, "lstm", is_scan=True, optimizer=optax.adam(1e-2)
    ),
    "listed gru, rmsprop": partial(
        recurrent, "gru", is_tied=False, optimizer=optax.rmsprop(1e-2)
    ),
    "bidirectional lstm": partial(recurrent, "lstm", 2, is_bidirectional=True),
    "linear recurrence": partial(recurrent, "linear", 4),
    "residual net": partial(resnet),
    "scanned residual net, nesterov": partial(
        resnet, is_scan=True, optimizer=optax.sgd(0.1, momentum=0.9, nesterov=True)
    ),
    "mixture of experts": partial(mixture, optimizer=optax.adam(1e-2)),
    "tied autoencoder": partial(autoencoder, optimizer=optax.adam(1e-2)),
    "generator and critic": adversaries,
    "pairs of a batch": partial(pair, optimizer=optax.adam(1e-2)),
    "moving average of weights": averaged,
    "nnx mlp": nnx_mlp,
    "nnx transformer": nnx_transformer,
    "equinox transformer": equinox_transformer,
    "equinox lstm": equinox_lstm,
    "linen transformer": linen_transformer,
    "haiku mlp": haiku_mlp,
}
