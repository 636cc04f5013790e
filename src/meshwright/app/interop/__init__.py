"""Plans for other programs: constraints for plain `jax.jit`, and logical axis rules.

Logical axis rules are Flax's and MaxText's way to shard arrays by the names of their dims.
Begin reading at `annotate.py`, or at `logical_axes.py`.
"""
