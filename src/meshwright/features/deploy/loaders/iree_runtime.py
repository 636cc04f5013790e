"""Running of the folder's `model.vmfb`, which IREE compiled, by IREE's runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iree.runtime as runtime  # pyright: ignore[reportMissingImports]
import numpy as np


class IreeModule:
    """A module compiled by IREE: a function from arrays by name to a list of arrays.

    Its device is the one that `driver` in model.json names, such as "local-sync".
    """

    def __init__(self, home: Path, about: dict[str, Any]) -> None:
        self._config: Any = runtime.Config(about["driver"])
        self._inputs = [port["name"] for port in about["inputs"]]
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
        loaded: Any = runtime.load_vm_modules(*modules, config=self._config)
        self._main: Any = loaded[-1].main

    def __call__(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs in order."""
        device = self._config.device
        places = [runtime.asdevicearray(device, inputs[name]) for name in self._inputs]
        results = self._main(*places)
        several = results if isinstance(results, tuple | list) else (results,)
        return [self._fetch(result) for result in several]

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


def open_model(home: Path, about: dict[str, Any]) -> IreeModule:
    """A function from arrays by name to the outputs in order."""
    return IreeModule(home, about)
