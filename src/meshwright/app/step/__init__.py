"""The traced, planned and compiled function for each signature of its arguments.

The signature is the types of the arguments. Initial states and nnx modules are handled
here, too.
"""
