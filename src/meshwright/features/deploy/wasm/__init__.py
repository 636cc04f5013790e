"""The target `wasm`: IREE's kernels in a WebAssembly module, and what calls them.

In: a `SourceModel`. Out: `model.wasm` with the kernels, `host.json` with the program
that allocates memory and calls them, `weights.bin`, and `runner.js`, which runs that
program and needs nothing else. Browsers load `runner.js` from a page; `serve.mjs` lets
Python call it in Node.js. Begin reading at `build.py`; `host_program.py` reads IREE's
host code.
"""
