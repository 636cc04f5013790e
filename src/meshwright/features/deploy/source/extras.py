"""Checks that the optional packages of a target are installed, made when it is used."""

from importlib.util import find_spec

from meshwright.errors import DeployError


def require(*modules: str) -> None:
    """Raise `DeployError`, which says what to install, for missing Python modules."""
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        raise DeployError(
            "this target needs packages of the extra 'deploy': "
            f"{', '.join(missing)} cannot be imported; pip install 'meshwright[deploy]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the parent package
        return False
