"""Decorators that compile inner loops with numba.

The machine code is cached on disk, and runs without Python's global lock (GIL).
"""

from collections.abc import Callable

import numba


def compiled[**P, R](fn: Callable[P, R]) -> Callable[P, R]:
    """Compile a function to machine code; the type checker still sees its signature."""
    return numba.njit(cache=True, nogil=True)(fn)


def compiled_in_place[**P, R](fn: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that allocates no arrays, so that numba counts no references.

    If many short functions pass on a record of twenty arrays, counting the references
    to these arrays takes four fifths of the time.
    """
    # Numba itself has `_nrt`; its stubs do not.
    return numba.njit(cache=True, nogil=True, _nrt=False)(fn)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
