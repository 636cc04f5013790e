"""`mw.stage`, with which users mark where a stage of a pipeline begins."""

from meshwright.errors import CaptureError
from meshwright.program.capture.tag import tag


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
