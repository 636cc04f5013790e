"""Calls of a build's compiler, which come to the process that runs the build.

In: a call's arguments, folder, environment and streams, as a small program in the place of
the compiler hands them over (`stand_in.c`, or else `stand_in.py`). Out: the object that the
build wants, made with recorded or learned decisions, or a unit of a corpus. If this process
is gone, the program runs the compiler itself. Begin reading at `call_server.py`.
"""
