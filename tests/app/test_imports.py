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
SHOW = f"import json, sys; print(json.dumps([x for x in {HEAVY} if x in sys.modules]))"

FEATURES = sorted(
    path.name
    for path in (Path(meshwright.__file__).parent / "features").iterdir()
    if (path / "__init__.py").is_file()
)


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


CORE = """
import sys
import meshwright as mw
import meshwright.cli.plan, meshwright.cli.explain
mw.partition, mw.autoplan, mw.Plan, mw.auto, mw.calibrate, mw.reductions
print(*sorted(m.split(".")[2] for m in sys.modules if m.startswith("meshwright.features.")))
"""


@pytest.fixture(scope="module")
def loaded_features() -> set[str]:
    """Features that a fresh interpreter has imported after all of the core."""
    done = subprocess.run(
        [sys.executable, "-c", CORE], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", FEATURES)
def test_the_core_does_not_load_a_feature(name: str, loaded_features: set[str]):
    assert name not in loaded_features


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
