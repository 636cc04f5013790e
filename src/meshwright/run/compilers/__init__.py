"""The real compilers of TPUs and GPUs, which need no device here."""
