"""The devices of a run: of this process, of `jax.distributed`, or of a cluster."""
