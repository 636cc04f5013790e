"""Pages of the documentation site that are made from code."""

from types import SimpleNamespace

import pytest

from tools import pages

SCRIPT = '''"""The title.

The introduction.
"""

# %% First part
#
# Text of the part.

import os

os.getcwd()

# More text.
os.sep
'''


def test_a_script_becomes_a_page_of_text_and_code():
    assert pages.script_page(SCRIPT) == (
        "# The title\n\nThe introduction.\n\n## First part\n\nText of the part.\n\n"
        "```python\nimport os\n\nos.getcwd()\n```\n\nMore text.\n\n"
        "```python\nos.sep\n```\n"
    )


def test_the_tutorial_keeps_all_its_code():
    source = (pages.ROOT / "docs/tutorial.py").read_text(encoding="utf-8")
    page = pages.script_page(source)
    cells = source.split("# %% ", 1)[1].splitlines()[1:]
    code = [x for x in cells if x.strip() and not x.startswith("#")]
    assert [line for line in code if line not in page] == []
    assert page.count("\n## ") == source.count("# %% ")


def test_the_command_reference_has_every_command_with_its_options():
    page = pages.commands_page()
    for command in ("plan", "explain", "check", "confirm", "machines", "zoo", "iopddl"):
        assert f"\n## `meshwright {command}`" in page
        assert f"meshwright {command} [OPTIONS]" in page
    assert "--schedule" in page


def test_parameters_become_a_list():
    text = "mesh: axes\n    by name.\nstatic_*, donate_*: as in `jax.jit`."
    assert pages.entry_list(text) == (
        "- `mesh`: axes\n    by name.\n- `static_*, donate_*`: as in `jax.jit`."
    )
    prose = "The mesh: its axes\nby name."
    assert pages.entry_list(prose) == prose


def test_links_out_of_the_folder_lead_to_copies_and_made_pages():
    text = (
        "[a](../CHANGELOG.md#planning) [b](../benchmarks/results/peers.json) [c](tpu.md)"
        " [d](tutorial.py) [e](https://docs.jax.dev) [f](#here) ![g](pictures/found.png)"
    )
    found = pages.moved_links("peers.md", text)
    assert pages.with_links(text, found) == (
        "[a](changelog.md#planning) [b](files/benchmarks/results/peers.json) [c](tpu.md)"
        " [d](tutorial.md) [e](https://docs.jax.dev) [f](#here) ![g](pictures/found.png)"
    )


def test_links_from_a_folder_climb_out_of_it():
    text = "[a](../../CHANGELOG.md) [b](../tutorial.py) [c](read_a_plan.ipynb#why)"
    found = pages.moved_links("howto/one_host.md", text)
    assert pages.with_links(text, found) == (
        "[a](../changelog.md) [b](../tutorial.md) [c](read_a_plan.md#why)"
    )


@pytest.mark.parametrize(
    ("tag", "is_remote"),
    [
        ('<script src="https://example.org/x.js"></script>', True),
        ("<link rel=stylesheet href=//example.org/x.css>", True),
        ('<img alt="" src="http://example.org/x.png">', True),
        ('<a href="https://example.org">elsewhere</a>', False),
        ('<script src="assets/x.js"></script>', False),
    ],
)
def test_a_page_that_loads_from_another_host_is_refused(tag, is_remote, tmp_path):
    (tmp_path / "index.html").write_text(f"<html>{tag}</html>", encoding="utf-8")
    config = SimpleNamespace(site_dir=str(tmp_path))
    if is_remote:
        with pytest.raises(SystemExit, match="loads from another host"):
            pages.on_post_build(config)
    else:
        pages.on_post_build(config)
