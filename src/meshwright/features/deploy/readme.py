"""The text of the README in a deployed model's folder."""

from __future__ import annotations

from meshwright.features.deploy.deployment import Deployment
from meshwright.features.deploy.source.model import Port, SourceModel
from meshwright.features.deploy.targets import DeployTarget

_PAGE = """
Open the page through a server, since browsers load no WebAssembly from files:

    python -m http.server --bind 127.0.0.1 8000
    # then http://127.0.0.1:8000/

Nothing is loaded from elsewhere: the runtime lies in `ort/`.
"""

_STEP = """
The model takes a state and returns its next one, as training steps and caches do. Give the
new state to the next call:

    inputs = model.next_inputs(inputs, outputs)
"""


def readme_text(record: Deployment, target: DeployTarget, model: SourceModel) -> str:
    """The README as Markdown: use, inputs, outputs, and comparison with JAX."""
    inputs = ", ".join(f"{port.name}=..." for port in model.inputs)
    if any("." in port.name for port in model.inputs):
        items = ", ".join(f'"{port.name}": ...' for port in model.inputs[:3])
        more = ", ..." if len(model.inputs) > 3 else ""
        inputs = f"**{{{items}{more}}}"
    parts = [
        f"# {record.name}, for {target.name}\n\nRuns on {target.runs_on}.\n",
        "## In Python\n\n"
        f"    pip install {target.packages}\n\n"
        "    from model import load\n"
        "    model = load()\n"
        f"    outputs = model({inputs})\n",
        _STEP if model.ties else "",
        f"## In a browser\n{_PAGE}" if target.name == "web" else "",
        "## Inputs\n\n" + _table(model.inputs),
        "## Outputs\n\n" + _table(model.outputs),
        "## Compared with JAX\n\n" + _comparison(record),
    ]
    return "\n".join(part for part in parts if part)


def _table(ports: tuple[Port, ...]) -> str:
    rows = [f"| `{p.name}` | {p.dtype} | {list(p.shape)} |" for p in ports]
    return "| name | dtype | shape |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _comparison(record: Deployment) -> str:
    if record.error is None:
        return f"Not run where it was made: {record.note}.\n"
    kind = f" after {record.quantized} quantization" if record.quantized else ""
    text = f"Largest difference{kind}: {record.error:.2g} of the largest value.\n"
    if record.latency_s and record.jax_s:
        text += (
            f"A call takes {1e3 * record.latency_s:.3g} ms, and JAX on the same CPU "
            f"{1e3 * record.jax_s:.3g} ms.\n"
        )
    rows = "".join(f"- {each}\n" for each in record.differences)
    return f"{text}\nOps that differ for some values:\n\n{rows}" if rows else text
