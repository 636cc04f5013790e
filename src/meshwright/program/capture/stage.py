"""The mark of a pipeline's stage, which is a tag."""

from meshwright.errors import CaptureError
from meshwright.program.capture.tag import tag


def stage[T](x: T, name: str) -> T:
    """`x` itself; from here on, a pipelined step is in the stage `name`.

    x: any pytree of arrays that depend on the batch, such as the activations that the
        stage before hands over. A mark changes nothing unless the step runs under
        `mw.pipeline`, and then only where it is cut.
    """
    if not isinstance(name, str) or not name or ":" in name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CaptureError(
            f"the name of a stage is {name!r:.60}; wanted a text without ':', as in "
            "stage(x, 'decoder')"
        )
    return tag(x, f"stage:{name}")
