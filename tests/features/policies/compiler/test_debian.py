"""Sources of Debian packages, from a repository in a folder."""

import hashlib
import shutil
import tarfile
from pathlib import Path

import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.debian import debian_source

needs_apt = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-source")),
    reason="needs apt-get and dpkg-source",
)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A configuration of apt with one repository, which has the package "tiny"."""
    repository, source = tmp_path / "repository", tmp_path / "tiny-1.0"
    repository.mkdir()
    (source / "debian" / "source").mkdir(parents=True)
    (source / "Makefile").write_text("tiny.o: tiny.c\n")
    (source / "tiny.c").write_text("int one(void) { return 1; }\n")
    archive = repository / "tiny_1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source, "tiny-1.0")
    content = archive.read_bytes()
    told = f"{len(content)} {archive.name}"
    fields = (
        "Format: 3.0 (native)\n{name}: tiny\nBinary: tiny\nArchitecture: any\n"
        "Version: 1.0\nMaintainer: nobody <nobody@localhost>\n{directory}"
        f"Checksums-Sha256:\n {hashlib.sha256(content).hexdigest()} {told}\n"
        f"Files:\n {hashlib.md5(content).hexdigest()} {told}\n"
    )
    described = repository / "tiny_1.0.dsc"
    described.write_text(fields.format(name="Source", directory=""))
    own = described.read_bytes()
    index = fields.format(name="Package", directory="Directory: .\n")
    for digest, title in (("sha256", "Checksums-Sha256"), ("md5", "Files")):
        line = f" {hashlib.new(digest, own).hexdigest()} {len(own)} {described.name}"
        index = index.replace(f"{title}:\n", f"{title}:\n{line}\n")
    (repository / "Sources").write_text(index)
    system = tmp_path / "apt"
    (system / "sources.list.d").mkdir(parents=True)
    (system / "sources.list.d" / "own.sources").write_text(
        f"Types: deb\nURIs: file:{repository}\nSuites: ./\nTrusted: yes\n"
    )
    return system


@needs_apt
def test_a_package_is_unpacked_once(system: Path, tmp_path: Path) -> None:
    first = debian_source("tiny", tmp_path / "sources", system=system)
    assert (first / "tiny.c").read_text() == "int one(void) { return 1; }\n"
    shutil.rmtree(tmp_path / "repository")
    assert debian_source("tiny", tmp_path / "sources", system=system) == first


@needs_apt
def test_lines_of_an_old_list_are_read_as_well(system: Path, tmp_path: Path) -> None:
    (system / "sources.list.d" / "own.sources").unlink()
    line = f"deb [trusted=yes] file:{tmp_path / 'repository'} ./\n"
    (system / "sources.list").write_text(f"# ours\n{line}")
    assert debian_source("tiny", tmp_path / "sources", system=system).is_dir()


@needs_apt
def test_what_cannot_be_had_is_told(system: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="'--help' is no name of a Debian package"):
        debian_source("--help", tmp_path / "sources", system=system)
    with pytest.raises(PolicyError, match="large: Unable to find a source package"):
        debian_source("large", tmp_path / "sources", system=system)
    assert debian_source("tiny", tmp_path / "sources", system=system).is_dir()
    with pytest.raises(PolicyError, match="names no repository"):
        debian_source("tiny", tmp_path / "others", system=tmp_path / "none")


@needs_apt
def test_a_changed_archive_is_refused(system: Path, tmp_path: Path) -> None:
    archive = tmp_path / "repository" / "tiny_1.0.tar.gz"
    archive.write_bytes(archive.read_bytes()[::-1])
    with pytest.raises(PolicyError, match="apt-get cannot get tiny"):
        debian_source("tiny", tmp_path / "sources", system=system)


def test_a_machine_without_apt_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PolicyError, match="needs apt-get"):
        debian_source("tiny", tmp_path)
