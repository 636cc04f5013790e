"""Files of learned policies of any kind."""

import zipfile
from pathlib import Path

import numpy as np

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.policies import (
    FORMAT,
    AllocationPolicy,
    make_policy,
)
from meshwright.features.policies.compiler.learned.inline_policy import (
    InlinePolicy,
    read_inline_policy,
)

SHIPPED = Path("shipped")
"""Stands for the policy of eviction that comes with Meshwright."""

_SHIPPED_FILE = Path(__file__).with_name("evict.npz")

CompilerPolicy = InlinePolicy | AllocationPolicy


def read_policy(path: str | Path) -> CompilerPolicy:
    """The policy of a file, of a folder that `policies train` wrote, or `SHIPPED`."""
    path = Path(path)
    file = path / "policy.npz" if path.is_dir() else path
    if path == SHIPPED and not path.exists():
        file = _SHIPPED_FILE
    advice = "; make one by `meshwright policies train`"
    if not file.is_file():
        raise PolicyError(f"{path} has no policy{advice}")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            name = str(arrays["format"])
            if name == FORMAT.format("inline"):
                return read_inline_policy(file)
            weights = arrays["weights"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise PolicyError(f"{file} is no policy ({fault}){advice}") from None
    for kind in ("evict", "priority"):
        if name == FORMAT.format(kind):
            return make_policy(kind, weights)
    raise PolicyError(f"{file} is of the format {name!r}, which is not known{advice}")
