"""The model of this folder on IREE's runtime: `pip install iree-base-runtime numpy`.

from model import load
outputs = load()(x=array)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import iree.runtime as runtime  # pyright: ignore[reportMissingImports]
import numpy as np


class IreeModel:
    """A module compiled by IREE: a function from arrays by name to a dict of arrays.

    driver: IREE's name of the device, such as "local-sync". By default it is the one
        for which the module was compiled.
    """

    def __init__(self, folder: str | Path = "", driver: str = "") -> None:
        home = Path(folder) if folder else Path(__file__).parent
        self.about: dict[str, Any] = json.loads(
            (home / "model.json").read_text("utf-8")
        )
        self._config: Any = runtime.Config(driver or self.about["driver"])
        modules: list[Any] = []
        weights = home / "weights.irpa"
        if weights.exists():
            index: Any = runtime.ParameterIndex()
            index.load(str(weights))
            provider = index.create_provider("model")
            modules.append(
                runtime.create_io_parameters_module(self._config.vm_instance, provider)
            )
        code = runtime.VmModule.mmap(self._config.vm_instance, str(home / "model.vmfb"))
        modules.append(code)
        self._main: Any = runtime.load_vm_modules(*modules, config=self._config)[
            -1
        ].main

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """A dict of the outputs by name."""
        _require_names(inputs, self.about["inputs"])
        given = [
            self._place(inputs[port["name"]], port) for port in self.about["inputs"]
        ]
        results = self._main(*given)
        several = results if isinstance(results, tuple | list) else (results,)
        return {
            port["name"]: self._fetch(result).astype(_dtype(port["dtype"]), copy=False)
            for port, result in zip(self.about["outputs"], several, strict=True)
        }

    def next_inputs(
        self, inputs: dict[str, Any], outputs: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        """Inputs of the next training step: `inputs` with the new state of `outputs`."""
        ties = self.about["ties"]
        return inputs | {ties[name]: outputs[name] for name in ties}

    def _place(self, array: Any, port: dict[str, Any]) -> Any:
        plain = np.asarray(array, dtype=_dtype(port["dtype"]), order="C")
        if list(plain.shape) != port["shape"]:
            raise ValueError(
                f"{port['name']} has shape {list(plain.shape)}; wanted {port['shape']}"
            )
        return runtime.asdevicearray(self._config.device, plain)

    def _fetch(self, result: Any) -> np.ndarray:
        try:
            return np.array(result.to_host())
        except (
            ValueError
        ):  # IREE 3.13 offers NumPy's memory, whose place Vulkan refuses
            return self._staged(result)

    def _staged(self, result: Any) -> np.ndarray:
        """A result, copied from the device through a buffer that the host can read."""
        view, device = result._buffer_view, self._config.device
        source = view.get_buffer()
        target = device.allocator.allocate_buffer(
            memory_type=int(
                runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE
            ),
            allowed_usage=int(
                runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED
            ),
            allocation_size=source.byte_length(),
        )
        done = device.create_semaphore(0)
        device.queue_copy(
            source,
            target,
            wait_semaphores=runtime.HalFence.create_at(done, 0),
            signal_semaphores=runtime.HalFence.create_at(done, 1),
        )
        runtime.HalFence.create_at(done, 1).wait()
        dtype = runtime.HalElementType.map_to_dtype(view.element_type)
        return np.array(target.map().asarray(view.shape, dtype))


def _require_names(inputs: dict[str, Any], ports: list[dict[str, Any]]) -> None:
    names = [port["name"] for port in ports]
    if set(inputs) != set(names):
        given = ", ".join(sorted(inputs)) or "nothing"
        raise ValueError(f"the inputs are {given}; wanted {', '.join(names)}")


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def load(folder: str | Path = "") -> IreeModel:
    """The model in a folder, by default in the folder of this file."""
    return IreeModel(folder)
