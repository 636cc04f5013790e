"""What `import meshwright` and its names load: each dependency only where it is needed."""

import json
import subprocess
import sys

import pytest

HEAVY = ("jax", "numba", "orjson", "ortools", "pandas", "scipy")
SHOW = f"import json, sys; print(json.dumps([x for x in {HEAVY} if x in sys.modules]))"


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import meshwright", []),
        ("import meshwright.cli", []),
        ("import meshwright as mw; mw.partition, mw.fsdp, mw.Plan", ["jax"]),
        ("import meshwright as mw; mw.autoplan", ["jax", "numba", "scipy"]),
    ],
)
def test_a_name_loads_only_what_it_needs(code: str, wanted: list[str]):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{SHOW}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == wanted
