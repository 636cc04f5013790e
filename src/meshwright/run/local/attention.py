"""Attention of cuDNN on one device: its custom call on a GPU, the plain form on a CPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from meshwright.jax_private import attention_primitive
from meshwright.program.ir import Op
from meshwright.program.ops.arithmetic.attention import BACKWARD, FORWARD, Attention

_BNTH = 1


CUSTOM_CALLS = tuple(
    f"__cudnn$fmha{bias}Softmax{dropout}{backward}"
    for bias in ("", "ScaleBias")
    for dropout in ("", "Dropout")
    for backward in ("", "Backward")
)
"""The names of cuDNN's kernels in a program for CUDA."""


def attention(op: Op, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of cuDNN's attention on global arrays or on one device's parts."""
    call = Attention(op)
    params = dict(op.params)
    primitive: Any = op.primitive
    if call.why_whole or not _is_manual():
        return primitive.bind(*operands, **params)
    if "score_mod" in params:  # a parameter of newer releases of jax
        params.pop("score_mod")
        params.update(score_mod_name=None, score_mod_jaxpr=None)
    return PRIMITIVES[op.kind].bind(*operands, **params)


def _is_manual() -> bool:
    """Whether JAX traces code of one device, in a `shard_map`."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def _forward(*operands: Any, is_training: bool, **params: Any) -> list[Any]:
    """The output and, for a backward pass, the logarithm of each row's sum in float32."""
    out, statistics = _plain(params, operands)(*operands[:4])
    return [out, statistics] if is_training else [out]


def _backward(*operands: Any, **params: Any) -> list[Any]:
    """The gradients of queries, keys and values, and of the bias if one is asked for."""
    plain = _plain(params, operands)
    _, has_bias_gradient = params["variadic_args"]
    _, reverse = jax.vjp(lambda *args: plain(*args)[0], *operands[:4])
    gradients = reverse(operands[12])
    return list(gradients if has_bias_gradient else gradients[:3])


def _plain(
    params: Mapping[str, Any], operands: Sequence[Any]
) -> Callable[..., tuple[Any, Any]]:
    """Attention of the same parameters by JAX's own ops, with all scores in memory.

    The function takes queries, keys, values and a bias, and returns the output and the
    logarithm of each row's sum.
    """
    _refuse(params, operands)
    mask = params["mask_type"].name
    window = params["sliding_window_length"]
    query_lengths, key_lengths = operands[4:6] if "PADDING" in mask else (None, None)
    has_bias, _ = params["variadic_args"]
    is_bnth = params["layout"] == _BNTH

    def turned(x: Any) -> Any:
        return jnp.swapaxes(x, 1, 2) if is_bnth else x

    def wide(x: Any) -> Any:  # a CPU has no products of float16
        return x.astype(jnp.float32) if x.dtype == jnp.float16 else x

    def plain(query: Any, key: Any, value: Any, bias: Any) -> tuple[Any, Any]:
        out, sums = jax.nn.dot_product_attention(
            turned(wide(query)),
            turned(wide(key)),
            turned(wide(value)),
            wide(bias) if has_bias else None,
            scale=params["scale"],
            is_causal="CAUSAL" in mask,
            query_seq_lengths=query_lengths,
            key_value_seq_lengths=key_lengths,
            local_window_size=(window - 1, 0) if window else None,
            implementation="xla",
            return_residual=True,
        )
        return turned(out).astype(query.dtype), jnp.swapaxes(sums, 1, 2).astype(
            jnp.float32
        )

    return plain


def _refuse(params: Mapping[str, Any], operands: Sequence[Any]) -> None:
    """Raise `NotImplementedError` for what only cuDNN itself computes."""
    is_packed, is_paged = operands[6].ndim == 2, operands[8].ndim == 4
    has_score_mod = params.get("score_mod_jaxpr") is not None
    if params["dropout_rate"] > 0 or has_score_mod or is_packed or is_paged:
        raise NotImplementedError(
            "cuDNN's attention with dropout, a function of scores, packed segments or "
            "pages runs on GPUs alone; on a CPU it can be planned, but not run"
        )


PRIMITIVES = {
    FORWARD: attention_primitive("fwd", _forward),
    BACKWARD: attention_primitive("bwd", _backward),
}
"""The primitive of one device, by kind of op."""
