"""`vmap` of a while loop as a while loop with a scalar condition.

JAX leaves the condition an array with one bool per batch element: the loop runs as long
as any is true, and elements whose condition is false keep their carry. Here the "any" and
the selects become ops of the condition and the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import jaxpr_as_fun


def is_batched(params: Any) -> bool:
    """Whether a while primitive's condition is an array."""
    return bool(params["cond_jaxpr"].out_avals[0].shape)


def unbatch[T](
    params: Any, operands: Sequence[T]
) -> tuple[dict[str, Any], tuple[T, ...]]:
    """Parameters and operands of the equivalent loop with a scalar condition.

    The new body evaluates the condition too, so it also gets the condition's constants.
    """
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond, body = jaxpr_as_fun(params["cond_jaxpr"]), jaxpr_as_fun(params["body_jaxpr"])

    def any_goes_on(*args: Any) -> Any:
        (going,) = cond(*args)
        return lax.reduce_or(going, tuple(range(going.ndim)))

    def one_step(*args: Any) -> list[Any]:
        fixed, own, carry = (
            args[:num_cond],
            args[num_cond:][:num_body],
            args[num_cond + num_body :],
        )
        (going,) = cond(*fixed, *carry)
        pairs = zip(carry, body(*own, *carry), strict=True)
        return [_keep_done(going, old, new) for old, new in pairs]

    fixed, own_carry = tuple(operands[:num_cond]), tuple(operands[num_cond:])
    cond_avals = list(params["cond_jaxpr"].in_avals)
    body_avals = cond_avals[:num_cond] + list(params["body_jaxpr"].in_avals)
    changed = {
        "cond_jaxpr": jax.make_jaxpr(any_goes_on)(*cond_avals),
        "body_jaxpr": jax.make_jaxpr(one_step)(*body_avals),
        "cond_nconsts": num_cond,
        "body_nconsts": num_cond + num_body,
    }
    return {**params, **changed}, (*fixed, *fixed, *own_carry)


def _keep_done(going: Any, old: Any, new: Any) -> Any:
    which = lax.broadcast_in_dim(going, new.shape, tuple(range(going.ndim)))
    return lax.select(which, new, old)
