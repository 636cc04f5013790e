"""`Deployment`: the record of what a deployment wrote, and how it compares with JAX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import DeployError
from meshwright.machine.memory_size import show_bytes
from meshwright.plain import Frame

_FRAME = Frame(
    DeployError,
    "the text is no record of a deployment",
    {"format": "meshwright deployment", "version": 1},
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """The result of deploying a function.

    folder: path of the written folder. files: (path, bytes) of each file, the largest
        first.
    inputs, outputs: each as `name: dtype[shape]`. weight_bytes: bytes of the original
        weights.
    error: largest difference from JAX, relative to the largest magnitude of each output;
        `None` if this machine could not run the model, and then `note` says why.
    latency_s, jax_s: median seconds of a call of the model on this machine, and of the
        jitted original on this CPU, measured in turn.
    quantized: "" or "int8".
    differences: ops whose results differ from JAX's for some values, such as NaN, each
        with its source line.
    """

    name: str
    target: str
    folder: str
    files: tuple[tuple[str, int], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weight_bytes: int
    error: float | None
    latency_s: float | None
    jax_s: float | None
    quantized: str = ""
    note: str = ""
    differences: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(size for _, size in self.files)

    def to_json(self) -> str:
        """The record as JSON text, which `from_json` reads."""
        return _FRAME.write(self)

    @staticmethod
    def from_json(text: str) -> Deployment:
        """The record in a JSON text of `to_json`; `DeployError` for any other text."""
        return _FRAME.read(Deployment, text)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


_MOST_SHOWN = 3


def _lines(found: Deployment) -> Iterator[str]:
    kind = f", {found.quantized}" if found.quantized else ""
    yield f"{found.name} for {found.target}{kind}: {found.folder}"
    yield f"  inputs   {_some(found.inputs)}"
    yield f"  outputs  {_some(found.outputs)}"
    files = [f"{name} {show_bytes(size)}" for name, size in found.files]
    yield f"  files    {_some(files)}"
    weights = show_bytes(found.weight_bytes)
    yield f"  size     {show_bytes(found.num_bytes)}, weights {weights}"
    if found.error is None:
        yield f"  not run: {found.note}"
        return
    yield f"  error    {found.error:.2g} of JAX's largest value"
    if found.latency_s and found.jax_s:
        yield (
            f"  latency  {1e3 * found.latency_s:.3g} ms, JAX on this CPU "
            f"{1e3 * found.jax_s:.3g} ms"
        )
    if found.note:
        yield f"  note     {found.note}"
    for each in found.differences:
        yield f"  differs  {each}"


def _some(texts: tuple[str, ...] | list[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    shown = ", ".join(texts[:_MOST_SHOWN])
    return f"{shown}, and {more} more" if more > 0 else shown or "none"
