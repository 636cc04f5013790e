"""The state of a compilation, as passes of all compilers read and rewrite it.

`compilation` has the compiler and its passes; `fusion`, `layouts` and `kernels` what they
find; `dataflow` says which op reads what; `policies` are a compiler's choices.
"""
