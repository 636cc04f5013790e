"""WebAssembly by IREE: kernels in one module, and a small program that calls them.

In: a model. Out: `model.wasm`, `host.json`, `weights.bin` and a runtime in JavaScript that
needs nothing else. Begin reading at `build.py`; `host_program.py` reads IREE's host code.
"""
