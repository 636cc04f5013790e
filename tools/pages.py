"""Pages of the documentation site that are made from code, as hooks of MkDocs.

The tutorial is docs/tutorial.py, the command reference comes from the command line
itself, and notebooks are executed, so that their outputs are those of this version. Files
outside of docs/ to which a page links are copied beside the pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
"""The target of a relative link or picture, and its anchor."""

ENTRY = re.compile(r"([a-z]\w*\*?(?:, [a-z]\w*\*?)*): (?=\S)")
"""The names of one or more parameters or fields, before their meaning."""


# -- the tutorial ------------------------------------------------------------------------


def script_page(source: str) -> str:
    """A script with `# %% Title` cells, as a page: comments are text, the rest is code."""
    head, *cells = re.split(r"^# %% ", source, flags=re.MULTILINE)
    title, _, intro = head.strip().strip('"').strip().partition("\n")
    return (
        "\n\n".join([f"# {title.rstrip('.')}", intro.strip(), *map(_cell, cells)])
        + "\n"
    )


def _cell(cell: str) -> str:
    title, _, body = cell.partition("\n")
    parts = [f"## {title}"]
    for block in re.split(r"\n\s*\n", body.strip()):
        lines = block.splitlines()
        count = next((i for i, x in enumerate(lines) if x[:1] != "#"), len(lines))
        text = "\n".join(line[1:].removeprefix(" ") for line in lines[:count]).strip()
        code = "\n".join(lines[count:])
        if text:
            parts.append(text)
        if code and parts[-1].endswith("\n```") and not text:
            parts[-1] = parts[-1].removesuffix("\n```") + f"\n\n{code}\n```"
        elif code:
            parts.append(f"```python\n{code}\n```")
    return "\n\n".join(parts)


# -- docstrings --------------------------------------------------------------------------


def entry_list(paragraph: str) -> str:
    """A docstring's lines `name: meaning` as a Markdown list; other text as it is.

    In Markdown such lines would flow into one paragraph.
    """
    starts = [line for line in paragraph.splitlines() if not line.startswith(" ")]
    if not all(map(ENTRY.match, starts)):
        return paragraph
    return re.sub(rf"(?m)^{ENTRY.pattern}", r"- `\1`: ", paragraph)


# -- the command reference ---------------------------------------------------------------

COMMANDS_INTRO = """What `meshwright COMMAND --help` prints, for each command.
`meshwright --help` lists the commands, `meshwright --version` prints the version, and
`meshwright --install-completion` installs completion for your shell."""


def commands_page() -> str:
    """The help of every command, as Markdown."""
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from meshwright.cli.main import app, load_command
    from meshwright.registry import COMMANDS

    context: Any = get_command(app).make_context("meshwright", ["machines"])
    parts = ["# Commands", COMMANDS_INTRO]
    for name in COMMANDS:
        command = load_command(name)
        text = get_docs_for_click(
            obj=command, ctx=context, name=name, call_prefix="meshwright", indent=1
        )
        parts.append(text.strip())
    return "\n\n".join(parts) + "\n"


# -- notebooks ---------------------------------------------------------------------------


def notebook_page(path: Path, folder: Path) -> str:
    """A notebook, executed in `folder`, as Markdown with the outputs that it has now."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    notebook = nbformat.read(path, as_version=4)
    os.environ |= {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "IPYKERNEL_CELL_NAME": path.name,  # as plans name the source of an op
    }
    folder.mkdir(parents=True, exist_ok=True)
    resources: Any = {"metadata": {"path": str(folder)}}
    quiet = ["--log-level=ERROR"]
    client = NotebookClient(
        notebook, timeout=300, resources=resources, extra_arguments=quiet
    )
    client.execute()
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    return text


# -- links -------------------------------------------------------------------------------


def moved_links(page: str, text: str) -> dict[str, str]:
    """Links from a page to what is elsewhere on the site, with their new targets.

    page: path below docs/. The changelog, the tutorial and notebooks become pages; other
    files that are not in docs/ lie below `files/`, under their path in the repository.
    """
    here = PurePosixPath(page).parent
    up = "../" * len(here.parts)
    found: dict[str, str] = {}
    for link, _ in LINK.findall(text):
        path = PurePosixPath(os.path.normpath(PurePosixPath("docs") / here / link))
        if path.parts[0] != "docs" and (ROOT / path).is_file():
            known = {"CHANGELOG.md": "changelog.md", "README.md": "README.md"}
            found[link] = up + known.get(str(path), f"files/{path}")
        elif path == PurePosixPath("docs/tutorial.py"):
            found[link] = up + "tutorial.md"
        elif path.suffix == ".ipynb":
            found[link] = link.removesuffix(".ipynb") + ".md"
    return found


def with_links(text: str, found: dict[str, str]) -> str:
    """The text, with the targets of links replaced."""

    def replace(match: re.Match[str]) -> str:
        return found.get(match[1], match[1]) + (match[2] or "")

    return LINK.sub(replace, text)


# -- hooks of MkDocs ---------------------------------------------------------------------


def made_pages(build: Path) -> dict[str, Callable[[], str]]:
    """How each page that is no file of docs/ is made, by its path on the site."""
    pages: dict[str, Callable[[], str]] = {
        "tutorial.md": lambda: script_page(
            (ROOT / "docs/tutorial.py").read_text("utf-8")
        ),
        "reference/commands.md": commands_page,
        "changelog.md": lambda: (ROOT / "CHANGELOG.md").read_text("utf-8"),
    }
    for path in sorted((ROOT / "docs").rglob("*.ipynb")):
        name = path.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        pages[name] = lambda path=path: notebook_page(path, build / "notebooks")
    return pages


def on_files(files: Any, config: Any) -> Any:
    """The files of the site: those of docs/, made pages, and files that pages link to."""
    from mkdocs.structure.files import File

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
    for name, make in made_pages(ROOT / "build").items():
        files.append(File.generated(config, name, content=make()))
    for file in [file for file in files if file.src_uri.endswith(".md")]:
        links = moved_links(file.src_uri, file.content_string)
        for target in links.values():
            path = re.sub(r"^(\.\./)*", "", target)
            if path.startswith("files/") and not files.get_file_from_path(path):
                source = str(ROOT / path.removeprefix("files/"))
                files.append(File.generated(config, path, abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with links to files outside of docs/ led to their copies."""
    return with_links(markdown, moved_links(page.file.src_uri, markdown))


def on_post_build(config: Any) -> None:
    """Refuse pages that load anything from another host."""
    loads = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*"
    )
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        found = loads.search(path.read_text("utf-8"))
        if found:
            raise SystemExit(f"{path} loads from another host: {found[0][:200]}")
