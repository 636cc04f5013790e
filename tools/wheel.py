"""The wheel, installed into fresh environments outside of this tree, and tried there.

    python tools/wheel.py [PYTHON ...]

Builds the wheel with this Python's hatchling. Then, for each Python, installs it with its
dependencies at the versions of requirements.lock, and runs what a new user runs first.
Without arguments, this Python and each newer one that is found are used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parents[1]
NEWER = ("python3.13", "python3.14")

STEP = """
import jax
import jax.numpy as jnp


def step(w, x):
    return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)


def target():
    f32 = jnp.float32
    return step, (jax.ShapeDtypeStruct((64, 64), f32), jax.ShapeDtypeStruct((128, 64), f32))
"""

TRY = """
import re
import sys
from importlib.metadata import metadata
from importlib.resources import files

import meshwright as mw
from step import target

home = files("meshwright")
assert str(home).startswith(sys.prefix), f"not the installed package: {home}"
assert (home / "py.typed").is_file(), "no py.typed: type checkers ignore the package"
presets = [p.name for p in (home / "machine" / "presets").iterdir()]
assert "tpu-v5e.toml" in presets, presets
text = metadata("meshwright")["Description"]
relative = re.findall(r"\\]\\((?!https?:|#)[^)]*\\)", text)
assert not relative, f"links that lead nowhere on a package index: {relative}"

fn, args = target()
plan = mw.partition(fn, {"data": 8}, [mw.fsdp("data")]).plan(*args)
assert plan.counts["reduce_scatter"] == 1, plan.counts
found = mw.autoplan(fn, args, machine="tpu-v5e", chips=8, budget_s=2)
assert found.fits
print("planned, and searched a plan")
"""

COMMANDS = (
    ("--version",),
    ("machines",),
    ("plan", "step.py:target", "--mesh", "data=8", "--tactics", "fsdp('data')"),
    ("check", "step.py:target", "--mesh", "data=8", "--tactics", "fsdp('data')"),
)


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a command, quietly; if it fails, print what it wrote and exit."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={key: each for key, each in os.environ.items() if key != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))}\n{done.stdout}\nfailed outside the tree"
        )


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree, built into a folder."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    run((*pip, "--no-build-isolation", "--wheel-dir", folder, ROOT), folder)
    (wheel,) = folder.glob("meshwright-*.whl")
    return wheel


def try_wheel(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel for one Python into an environment in `folder`, and use it."""
    bin_folder = folder / "venv/bin"
    run((python, "-m", "venv", "venv"), folder)
    pip = (bin_folder / "python", "-m", "pip", "install", "--quiet")
    run((*pip, "--constraint", ROOT / "requirements.lock", wheel), folder)
    (folder / "step.py").write_text(STEP, encoding="utf-8")
    (folder / "try.py").write_text(TRY, encoding="utf-8")
    run((bin_folder / "python", "try.py"), folder)
    for arguments in COMMANDS:
        run((bin_folder / "meshwright", *arguments), folder)


def works(python: str) -> bool:
    """Whether a Python of this name is installed and starts."""
    if which(python) is None:
        return False
    return not subprocess.run((python, "-c", ""), capture_output=True).returncode


def main(pythons: Sequence[str]) -> int:
    """Try the wheel under each Python; 1 if it fails under any."""
    chosen = pythons or [sys.executable, *filter(works, NEWER)]
    with tempfile.TemporaryDirectory() as name:
        wheel = build_wheel(Path(name))
        for number, python in enumerate(chosen):
            start_s = time.monotonic()
            folder = Path(name, str(number))
            folder.mkdir()
            try_wheel(wheel, python, folder)
            seconds = time.monotonic() - start_s
            print(f"{wheel.name} works under {python}: {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
