"""Generated sparse code, compared with SciPy's and JAX's."""
