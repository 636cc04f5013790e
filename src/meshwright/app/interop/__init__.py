"""Plans for other programs: constraints for plain `jax.jit`, and logical axis rules.

Begin reading at `annotate.py`, or at `logical_axes.py`.
"""
