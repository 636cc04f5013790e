"""The state of a compilation, which passes of all compilers read and rewrite.

`compilation` has the compiler and its passes; `fusion`, `layouts` and `kernels` are
results of passes; `dataflow` says which op reads which value; `policies` are a
compiler's choices.
"""
