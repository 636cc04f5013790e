"""The weights of the linear models that are shipped with the package."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def shipped_weights(file: str) -> Mapping[str, float]:
    """Weights by name, from a JSON file of the package.

    file: `gain_weights.json` has the weight of each feature in the mean of the gain, set by
        hand. `kernel_weights.json` has the weight of each term of a kernel's work, fitted
        to estimates of the compilers for v5e and v6e by
        `benchmarks/train/train_kernel_model.py`.
    """
    folder = files("meshwright.features.tune.layouts")
    return json.loads(folder.joinpath(file).read_text())["weights"]
