"""Numbers of HLO opcodes, in the numbering of TpuGraphs.

Numbers 1 to 120 are those of `hlo_opcode.h` in google-research-datasets/tpu_graphs
(Apache-2.0, commit ddd187c); 97 and 101 are retired there. Later opcodes of XLA follow
with numbers of our own. A trained model depends on the numbers: only append.
"""

from meshwright.errors import LearnedError, did_you_mean

_PUBLISHED = """
    abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad
    batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call
    ceil cholesky clamp collective-permute count-leading-zeros compare complex
    concatenate conditional constant convert convolution copy copy-done copy-start
    cosine custom-call divide domain dot dynamic-slice dynamic-update-slice
    exponential exponential-minus-one fft floor fusion gather get-dimension-size
    set-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one
    and not or xor map maximum minimum multiply negate outfeed pad parameter
    partition-id popcnt power real recv recv-done reduce reduce-precision
    reduce-window remainder replica-id reshape reverse rng rng-get-and-update-state
    rng-bit-generator round-nearest-afz rsqrt scatter select select-and-scatter send
    send-done shift-left shift-right-arithmetic shift-right-logical sign sine slice
    sort sqrt subtract tanh trace transpose triangular-solve tuple tuple-select
    while cbrt all-gather collective-permute-start collective-permute-done logistic
    dynamic-reshape all-reduce-start all-reduce-done reduce-scatter all-gather-start
    all-gather-done opt-barrier async-start async-update async-done
    round-nearest-even stochastic-convert tan
"""

_LATER = """
    erf topk collective-broadcast ragged-all-to-all ragged-dot acos acosh asin asinh
    atanh cosh sinh scaled-dot
"""

OPCODES = {
    name: number for number, name in enumerate((_PUBLISHED + _LATER).split(), start=1)
}
"""Number of each opcode; 0 is reserved for unknown ones."""

NUM_OPCODES = 1 + len(OPCODES)
"""Rows of a table that has one row per number, 0 included."""


def opcode_number(name: str) -> int:
    """The number of an opcode; raises `LearnedError` for an unknown name."""
    if name not in OPCODES:
        raise LearnedError(
            f"unknown HLO opcode {name!r}{did_you_mean(name, OPCODES)}; "
            f"{len(OPCODES)} are known. If XLA has a new opcode of this name, append it "
            "to meshwright.features.tune.learned.hlo.opcodes"
        )
    return OPCODES[name]
