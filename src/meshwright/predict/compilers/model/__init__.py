"""The state of a compilation, which passes of all compilers read and rewrite.

`compilation` has the compiler and its passes; `fusion`, `layouts` and `kernels` define
the results of passes; `dataflow` finds the producer and the consumers of each value;
`policies` describe how compilers differ in fusing and in assigning buffers.
"""
