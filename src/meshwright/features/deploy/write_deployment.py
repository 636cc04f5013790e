"""The steps of a deployment: convert a model, load it, compare it with JAX, move it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import DeployError
from meshwright.features.deploy.deployment import Deployment
from meshwright.features.deploy.folder import ABOUT_FILE, files_of, staged
from meshwright.features.deploy.legal.folding import fold_constants
from meshwright.features.deploy.legal.wide_floats import narrow_floats, widen_model
from meshwright.features.deploy.readme import readme_text
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.model import SourceModel
from meshwright.features.deploy.targets import DeployTarget, differences_of
from meshwright.plain import plain
from meshwright.program.ir import Literal, Program

LARGEST_ERROR = 1e-4
"""Largest allowed difference from JAX, relative to an output's largest magnitude.

Measured on seventeen zoo programs: at most 4.3e-6 where a target computes in float32.
"""

LARGEST_ERRORS = {"float16": 8 * 2.0**-10, "bfloat16": 8 * 2.0**-7}
"""The same for programs with narrow floats: eight of their rounding steps."""

_FILL_DTYPES = ("bfloat16", "float16", "float32", "float64")

_LEAST_FILL = 100.0
"""Least magnitude of a number that counts as one for masked elements.

Beside such numbers, an error of 1e-2 in elements of size 1 would pass.
"""

_MEASURED_S = 0.3
_MOST_CALLS = 200


def deploy_model(
    model: SourceModel, target: DeployTarget, out: Path, options: DeployOptions
) -> Deployment:
    """Write the folder of a model, after a check that its results equal JAX's.

    out: a path that `checked_folder` returned. Raises `DeployError`, and writes
        nothing, if the target cannot express the model or computes other results.
    """
    narrow = narrow_floats(model.program)
    lacking = tuple(dtype for dtype in narrow if dtype in target.lacks)
    computed = fold_constants(model.program)  # what is left to the runtime
    differences = differences_of(computed, target.differences)
    limit = max((LARGEST_ERRORS[d] for d in narrow), default=LARGEST_ERROR)
    model = widen_model(model, lacking) if lacking else model
    with staged(out) as folder:
        target.write(model, folder, options)
        loaders = Path(__file__).parent / "loaders"
        shutil.copyfile(loaders / "model.py", folder / "model.py")
        shutil.copyfile(loaders / target.runtime, folder / "runtime.py")
        _write_about(model, target, folder, options)
        error, latency_s, jax_s, note = _compare(
            model, target, folder, None if options.quantize else limit
        )
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        record = Deployment(
            name=model.name,
            target=target.name,
            folder=str(out),
            files=(),
            inputs=tuple(map(str, model.inputs)),
            outputs=tuple(map(str, model.outputs)),
            weight_bytes=model.weight_bytes,
            error=error,
            latency_s=latency_s,
            jax_s=jax_s,
            quantized=options.quantize,
            note="; ".join(filter(None, (note, _widened_note(lacking)))),
            differences=differences,
        )
        text = readme_text(record, target, model)
        (folder / "README.md").write_text(text, encoding="utf-8")
        files = files_of(folder)
    return replace(record, files=files)


def load_deployed(folder: Path) -> Any:
    """The model in a folder, loaded by the `model.py` that lies in the folder."""
    spec = importlib.util.spec_from_file_location("deployed_model", folder / "model.py")
    assert spec is not None, f"{folder} has a loader"
    assert spec.loader is not None, f"{folder} has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(folder)


def largest_error(
    found: NDArray[Any], wanted: NDArray[Any], fills: Sequence[float] = ()
) -> float:
    """The largest difference, relative to the largest magnitude of `wanted`.

    If all elements of `wanted` are 0, it is the largest difference itself. The result is
    infinite if shapes differ, or if infinities and NaNs are at other places.
    fills: numbers that masked elements have, such as -1e9. Each such element counts by
        its own magnitude: beside it, all others could be wrong unnoticed.
    """
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    is_complex = np.iscomplexobj(wanted)
    a, b = (np.asarray(x, complex if is_complex else float) for x in (found, wanted))
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    gaps, sizes = np.abs(a[finite] - b[finite]), np.abs(b[finite])
    if np.isnan(gaps).any():
        return float("inf")
    is_filled = np.isin(b[finite], fills)
    is_filled &= not is_filled.all()
    scale = float(sizes[~is_filled].max()) or 1.0
    scales = np.where(is_filled, np.maximum(sizes, scale), scale)
    return float((gaps / scales).max())


def fills_of(program: Program) -> list[float]:
    """The large numbers that are written into a program, which fill masked elements."""
    numbers = {
        float(np.asarray(atom.value, atom.dtype))
        for op in program.walk()
        for atom in op.operands
        if isinstance(atom, Literal) and atom.dtype in _FILL_DTYPES
    }
    return sorted(n for n in numbers if np.isfinite(n) and abs(n) >= _LEAST_FILL)


def _widened_note(dtypes: Sequence[str]) -> str:
    """What the record says of dtypes that the runtime lacks."""
    if not dtypes:
        return ""
    return f"{' and '.join(dtypes)} is computed in float32, also inputs and outputs"


# -- steps of a deployment -------------------------------------------------------------


def _write_about(
    model: SourceModel, target: DeployTarget, folder: Path, options: DeployOptions
) -> None:
    about = {
        "name": model.name,
        "target": target.name,
        "inputs": plain(model.inputs),
        "outputs": plain(model.outputs),
        "ties": {o: i for o, i in model.ties.items() if i in _input_names(model)},
        "labels": list(options.labels),
        "pixels": list(options.pixels),
        **target.about,
    }
    text = json.dumps(about, indent=1) + "\n"
    (folder / ABOUT_FILE).write_text(text, encoding="utf-8")


def _input_names(model: SourceModel) -> frozenset[str]:
    return frozenset(port.name for port in model.inputs)


def _compare(
    model: SourceModel, target: DeployTarget, folder: Path, limit: float | None
) -> tuple[float | None, float | None, float | None, str]:
    """(error, seconds, JAX's seconds, note) of calls of the written model.

    The first three are `None` if this machine has no device for the model, as the note
    says.
    limit: the largest allowed error; `None` if all are allowed.
    """
    try:
        loaded = load_deployed(folder)
    except Exception as error:
        if target.name == "iree-vulkan" and isinstance(
            error, ValueError | RuntimeError
        ):
            return None, None, None, f"no Vulkan driver here ({_first_line(error)})"
        raise _failed(target, "load", error) from error
    names = [port.name for port in model.inputs]
    given = dict(zip(names, model.samples, strict=True))
    try:
        outputs = loaded(**given)
    except Exception as error:
        raise _failed(target, "run", error) from error
    fills = fills_of(model.program)
    errors = {
        port.name: largest_error(outputs[port.name], wanted, fills)
        for port, wanted in zip(model.outputs, model.expected, strict=True)
    }
    worst = max(errors, key=errors.__getitem__, default="")
    error = errors.get(worst, 0.0)
    if limit is not None and not error <= limit:
        raise DeployError(
            f"{target.name} computes something else than JAX: {worst} differs by "
            f"{error:.2g} of its largest value, and {limit:g} is allowed. Either "
            "the program depends on the order of its floating-point operations, or the "
            "target's compiler makes a mistake: try another target, and functions that "
            f"compute a part of {worst}, to find the line"
        )
    latency_s, jax_s = measure_interleaved(lambda: loaded(**given), model.jitted)
    return error, latency_s, jax_s, ""


def _failed(target: DeployTarget, what: str, error: Exception) -> DeployError:
    return DeployError(
        f"the runtime of {target.name} cannot {what} the model that was written, so that "
        f"nothing is kept: {_first_line(error)}. Try another target"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120] if str(error).strip() else "?"


def measure_interleaved(
    *calls: Callable[[], Any], seconds: float = _MEASURED_S
) -> tuple[float, ...]:
    """Median seconds of a call of each function.

    The functions are called in turn, so that a slow phase of the machine concerns all
    of them, until `seconds` have passed.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    start_s = time.perf_counter()
    while len(times[0]) < _MOST_CALLS:
        for call, own in zip(calls, times, strict=True):
            before_s = time.perf_counter()
            call()
            own.append(time.perf_counter() - before_s)
        if time.perf_counter() - start_s > seconds and len(times[0]) >= 3:
            break
    return tuple(map(statistics.median, times))
