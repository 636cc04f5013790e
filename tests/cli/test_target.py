"""How targets are found: by file in or out of a package, and by module."""

import pytest

from meshwright.cli.arguments.target import find_target
from meshwright.errors import TargetError

MODEL = (
    "from {package}layers import width\ndef target(): return (lambda x: x), (width,)\n"
)


def test_a_file_in_a_package_imports_its_neighbours(write):
    write("pack_a/__init__.py", "")
    write("pack_a/sub/__init__.py", "")
    write("pack_a/sub/layers.py", "width = 7.0\n")
    place = write("pack_a/sub/model.py", MODEL.format(package="pack_a.sub."))
    assert find_target(place).args == (7.0,)


def test_a_file_of_a_package_elsewhere_imports_its_neighbours(
    write, tmp_path, monkeypatch
):
    write("far/pack_b/__init__.py", "")
    write("far/pack_b/layers.py", "width = 6.0\n")
    place = write("far/pack_b/model.py", MODEL.format(package="pack_b."))
    assert find_target(place).args == (6.0,)
    (tmp_path / "near").mkdir()
    monkeypatch.chdir(tmp_path / "near")
    assert find_target(f"../{place}:target").args == (6.0,)


def test_a_plain_file_imports_its_neighbours_and_from_the_working_directory(write):
    write("scripts/layers_c.py", "width = 5.0\n")
    write("at_root.py", "")
    text = "import at_root\nfrom layers_c import width\n"
    text += "def t(): return (lambda x: x), [width]\n"
    assert find_target(write("scripts/model_c.py", text)).args == (5.0,)


def test_a_file_may_have_the_name_of_another_module(write):
    """`json.py` is the user's file here, and the standard library's elsewhere."""
    import json

    place = write("json.py", "def target(): return (lambda x: x), (4.0,)\n")
    loaded = find_target(place)
    assert loaded.args == (4.0,)
    assert json.loads("1") == 1


def test_a_module_is_found_by_name(write):
    write("pack_d/__init__.py", "")
    write("pack_d/model.py", "def make(): return (lambda x: x), (3.0,)\n")
    loaded = find_target("pack_d.model:make")
    assert loaded.name == "pack_d.model:make"
    assert loaded.args == (3.0,)


def test_functions_imported_from_elsewhere_are_no_targets(write):
    text = "from functools import reduce\nfrom os import getcwd\n"
    text += "class Model: ...\ndef _private(): ...\n"
    text += "def mine(): return (lambda x: x), (2.0,)\n"
    assert find_target(write("own.py", text)).name == "own.py:mine"


def test_the_zoo_loads_by_path(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    target = find_target("zoo/gpt.py:t32")
    assert "bp+mp+z3" in target.schedules


def test_a_module_may_offer_targets_by_any_name(write):
    text = "def make(): return (lambda x: x), (3.0,)\n"
    place = write("family.py", text + "targets = {'1.3b': make}\n")
    loaded = find_target(f"{place}:1.3b")
    assert loaded.args == (3.0,)


def test_targets_that_are_no_table_are_refused(write):
    place = write("list_of_targets.py", "targets = ['a']\n")
    with pytest.raises(TargetError, match=r"targets is .*wanted \{name: function\}"):
        find_target(place)
