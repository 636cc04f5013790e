"""A compiler in a process of its own, which compiles one program after another.

In: device programs with layouts to try. Out: the compiler's estimates, or the seconds that
they take on a CPU. Begin reading at `server.py`; `server_child.py` runs in the process.
"""
