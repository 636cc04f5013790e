"""The list of commands: printed at once, without what the commands need."""

import subprocess
import sys
from importlib import metadata

import pytest

import meshwright as mw
from meshwright.cli.main import load_command
from meshwright.registry import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_line_of_each_commands_help(name):
    command = load_command(name)
    sentences = " ".join(command.help.partition("\n\n")[0].split())
    assert COMMANDS[name].line in (sentences, command.help.partition("\n")[0])


def test_help_and_version_import_neither_jax_nor_numba():
    script = (
        "import sys\nfrom meshwright.cli.main import main\n"
        "try:\n    main([sys.argv[1]])\nfinally:\n"
        "    heavy = {'jax', 'numba', 'scipy', 'ortools'} & {*sys.modules}\n"
        "    assert not heavy, heavy"
    )
    for option, words in (("--help", "explain"), ("--version", mw.__version__)):
        done = subprocess.run(
            [sys.executable, "-c", script, option],
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        assert words in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("meshwright ex", ["explain"]),
        ("meshwright plan --mac", ["--machine"]),
        ("meshwright plan zoo/gpt.py --gather sh", ["shared"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(
    typed, offered, run, monkeypatch
):
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setenv("_MESHWRIGHT_COMPLETE", "complete_bash")
    assert run().out.split() == offered


def test_the_version_is_that_of_the_package():
    assert metadata.version("meshwright") == mw.__version__


def test_all_public_names_are_there():
    for name in mw.__all__:
        assert getattr(mw, name) is getattr(mw, name)
        assert name in dir(mw)
    with pytest.raises(AttributeError, match="no attribute 'shards'"):
        mw.shards  # noqa: B018
    assert callable(mw.machine)  # also the name of a subpackage
