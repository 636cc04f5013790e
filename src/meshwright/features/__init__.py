"""Features: what Meshwright does beyond one partitioned step, one folder each.

A feature builds on the core, and the core does not know it but for the names in
`meshwright/registry.py`. Features do not import each other; the few that do are listed in
`pyproject.toml`. Each has its docstring (in, out, where to begin), what `mw` exports of it,
its command in `command.py`, and its page in the documentation.

    pipeline    a step in stages on parts of a mesh: planned, simulated, run
    cluster     many processes driven by one client; replicas of a step
    checkpoint  the state of training, saved and restored on any mesh
    train       training by a recipe
    tune        layouts and tiles that a compiler runs fastest; learned cost models
    deploy      a function as a folder that runs without JAX
    autodiff    reverse mode as three program transformations; residuals
    sparse      sparse code from a dense function
    nnx         steps that update flax nnx modules in place
    allocate    offsets of buffers in a memory
    chips       ops of a program on the chips of a module
    collectives reductions over the levels of a machine as several collectives
    iopddl      problems of the ASPLOS 2025 contest, for the core's assignment solver
    zoo         the list of the zoo's programs

`meshwright/__init__.py` has the public names.
"""
