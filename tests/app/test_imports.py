"""What `import meshwright` and its names load: each dependency only where it is needed."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import meshwright
from meshwright import registry

HEAVY = ("jax", "numba", "orjson", "ortools", "pandas", "scipy")
LOADS = {
    "import meshwright as mw": [],
    "import meshwright.cli": [],
    "mw.partition, mw.fsdp, mw.Plan": ["jax"],
    "mw.autoplan": ["jax", "numba", "scipy"],
}
"""What is loaded after each line of code, and after those before it."""

FEATURES = sorted(
    path.name
    for path in (Path(meshwright.__file__).parent / "features").iterdir()
    if (path / "__init__.py").is_file()
)


CORE = f"""
import json, sys
for line in {list(LOADS)}:
    exec(line)
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]))
import meshwright.cli.plan, meshwright.cli.explain
mw.partition, mw.autoplan, mw.Plan, mw.auto, mw.calibrate
features = [name for name in sys.modules if name.startswith("meshwright.features.")]
print(json.dumps([name.split(".")[2] for name in features]))
"""


@pytest.fixture(scope="module")
def loaded() -> list[list[str]]:
    """What a fresh interpreter has imported after each of LOADS.

    The last row has the features that it has imported after all of the core.
    """
    done = subprocess.run(
        [sys.executable, "-c", CORE], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_name_loads_only_what_it_needs(loaded: list[list[str]]):
    assert dict(zip(LOADS, loaded[:-1], strict=True)) == LOADS


@pytest.mark.parametrize("name", FEATURES)
def test_the_core_does_not_load_a_feature(name: str, loaded: list[list[str]]):
    assert name not in loaded[-1]


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_says_what_goes_in_and_out_and_where_to_begin(name: str):
    doc = " ".join((import_module(f"meshwright.features.{name}").__doc__ or "").split())
    assert all(word in doc for word in ("In:", "Out:", "Begin reading")), doc


def test_every_name_of_the_registry_is_there():
    for command in registry.COMMANDS.values():
        assert find_spec(f"meshwright.{command.home}"), command
    for name in registry._FUNCTIONS:
        assert callable(registry.feature(name)), name
    for place in registry._PLACES:
        module, _, kind = place.rpartition(".")
        maker = registry.step_maker(
            object.__new__(getattr(import_module(module), kind))
        )
        assert callable(maker), place
    assert registry.step_maker({"data": 8}) is None
