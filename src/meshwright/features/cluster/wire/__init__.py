"""Messages and programs that are sent between clients, the controller and workers.

`messages` are plain records without JAX; `program_code` is a program as bytes.
"""
