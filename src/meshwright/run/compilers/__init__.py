"""Ahead-of-time compilers of TPUs and GPUs, which need no device of theirs."""
