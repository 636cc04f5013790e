"""The primitive `tag`: an identity that gives a name to an intermediate value.

Tactics (the user's partitioning decisions) can then refer to the value by that name. With
`mw.stage` users mark where a stage of a pipeline begins.
"""

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from meshwright.errors import CaptureError

tag_p = Primitive("tag")
tag_p.def_impl(lambda x, name: x)
tag_p.def_abstract_eval(lambda x, name: x)
mlir.register_lowering(tag_p, lambda ctx, x, name: [x])
batching.defvectorized(tag_p)
ad.primitive_jvps[tag_p] = lambda primals, tangents, name: (
    tag_p.bind(*primals, name=name),
    tangents[0],
)


def tag[T](x: T, name: str) -> T:
    """`x` itself, which tactics may address as `tag:name`.

    `x` is a pytree of arrays.
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CaptureError(
            f"the name of a tag is {name!r:.60}; wanted a text: tag(x, 'y')"
        )

    def one(leaf: Any) -> Any:
        return tag_p.bind(leaf, name=name)

    return jax.tree_util.tree_map(one, x)


def stage[T](x: T, name: str) -> T:
    """`x` itself; code that depends on the result belongs to pipeline stage `name`.

    x: any pytree of arrays that depend on the batch, such as the activations that the
        stage before hands over.
    The mark has an effect only if the step runs under `mw.pipeline`, and then only on
    the choice of the ops at which the step is split into stages.
    """
    if not isinstance(name, str) or not name or ":" in name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CaptureError(
            f"the name of a stage is {name!r:.60}; wanted a text without ':', as in "
            "stage(x, 'decoder')"
        )
    return tag(x, f"stage:{name}")
