"""Everything that goes over the wire between clients, the controller and workers.

`messages` are plain records without JAX; `program_code` is a program as bytes.
"""
