"""Ahead-of-time compilers for TPUs and GPUs, which run without any such device."""
