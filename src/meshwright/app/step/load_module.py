"""Importing a user's Python module from a file path or a dotted name."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from meshwright.errors import TargetError


def load_module(place: str) -> ModuleType:
    """Import a module given by a file path or a dotted name.

    The working folder is searched first.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if not place.endswith(".py"):
        return _run_import(place, lambda: importlib.import_module(place))
    path = Path(place).resolve()
    if path.is_dir():
        raise TargetError(f"{place} is a folder; wanted a file, as in {place}/model.py")
    if not path.is_file():
        near = sorted(p.name for p in path.parent.glob("*.py"))
        there = f"; {path.parent} has {', '.join(near) or 'no file of Python'}"
        raise TargetError(f"there is no file {place}{there}")
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return _run_import(place, lambda: _import_file(name, path))


def _import_file(name: str, path: Path) -> ModuleType:
    """The module of a file, imported under its dotted name.

    If another module has that name already, the file is imported as `_target_<name>`.
    """
    loaded = sys.modules.get(name)
    if loaded is not None and _is_file(getattr(loaded, "__file__", None), path):
        return loaded
    if "." in name:
        return importlib.import_module(name)
    spec = importlib.util.find_spec(name) if loaded is None else None
    if spec is not None and _is_file(spec.origin, path):
        return importlib.import_module(name)
    private = f"_target_{name}"
    spec = importlib.util.spec_from_file_location(private, path)
    assert spec is not None, f"{path} has no module spec"
    assert spec.loader is not None, f"{path} has no loader"
    module = sys.modules[private] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_file(origin: str | None, path: Path) -> bool:
    return origin is not None and Path(origin).exists() and path.samefile(origin)


@contextmanager
def user_code() -> Generator[None]:
    """A context for a user's code, whose prints are no results of the command.

    It may trace attention of cuDNN, as if a GPU were here.
    """
    from meshwright.jax_private import (
        gpu_for_cudnn,  # commands load JAX when they need it
    )

    with redirect_stdout(sys.stderr), gpu_for_cudnn():
        yield


def _run_import(place: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        with user_code():
            return load()
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{place}.".startswith(f"{missing}."):
            raise TargetError(
                f"there is no module {missing!r}; for a file write path.py[:name]"
            ) from None
        raise TargetError(
            f"importing {place} failed: {describe_error(error)}"
        ) from error


def describe_error(error: BaseException) -> str:
    """Class and message of an error, and the file and line that raised it, as one line."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        at = f" ({error.filename}:{error.lineno})" if error.filename else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}{at}"
