"""Our ONNX models beside those of jax2onnx: which there are, and their CPU time.

    .venv-deploy/bin/python -m benchmarks deploy peer --peer PYTHON_OF_JAX2ONNX

The models are those of `tests/features/deploy/models.py`. Both files run in turn in one
process, on one thread of ONNX Runtime; a figure is the median over rounds of the ratio of
CPU times. Needs the extra `deploy`, and a Python environment with jax2onnx and onnxruntime.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np

import meshwright as mw
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.places import ROOT
from meshwright.errors import DeployError
from tests.features.deploy.models import MODELS

_ROUNDS, _CALLS, _WARM = 25, 40, 50


def peer_rows(python: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The lines that `peer_convert.py` prints."""
    script = Path(__file__).with_name("peer_convert.py")
    done = subprocess.run(
        [python, str(script), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def session(path: Path) -> Any:
    """A session of ONNX Runtime on one thread."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )


def cpu_s(model: Any, arrays: list[Any], calls: int) -> float:
    """CPU seconds of a call, on average."""
    names = [each.name for each in model.get_inputs()]
    given = dict(zip(names, arrays, strict=True))
    before_s = time.process_time()
    for _ in range(calls):
        model.run(None, given)
    return (time.process_time() - before_s) / calls


def compare(name: str, theirs: Path, folder: Path) -> dict[str, Any]:
    """Our error, and CPU seconds of both files if theirs is there."""
    fn, args = MODELS[name]()
    try:
        made = mw.deploy(fn, args, to="onnx", out=folder / "ours")
    except DeployError as refusal:
        return {"our_refusal": str(refusal)[:200]}
    row: dict[str, Any] = {"our_error": made.error}
    if not theirs.exists():
        return row
    leaves = [np.asarray(x) for x in jax.tree.leaves(args)][-len(made.inputs) :]
    models = session(folder / "ours" / "model.onnx"), session(theirs)
    for model in models:
        cpu_s(model, leaves, _WARM)
    rounds = [[cpu_s(m, leaves, _CALLS) for m in models] for _ in range(_ROUNDS)]
    ours, peers = map(statistics.median, zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    return {**row, "cpu_s": ours, "peer_cpu_s": peers, "ratio": ratio}


@benchmark(option("--peer", required=True, help="python of jax2onnx"), out=STORED)
def main(options: Options) -> None:
    """Print a line a model and the median ratio; write all as JSON."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in peer_rows(options.peer, Path(folder)):
            name = row["model"]
            rows.append(row | compare(name, Path(folder, f"{name}.onnx"), Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    print(f"median of {len(ratios)} models: {statistics.median(ratios):.2f}")
    options.save({"rows": rows, "median": statistics.median(ratios)})


if __name__ == "__main__":
    main()
