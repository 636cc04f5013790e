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


def compiled_to_vectors[**P, R](fn: Callable[P, R]) -> Callable[P, R]:
    """Compile a function like `compiled_in_place`, where a division by 0 gives infinity.

    Python's error for such a division is a branch at each one, which keeps a loop from
    becoming vector instructions: a step of Adam takes a seventh of the time.
    """
    return numba.njit(cache=True, nogil=True, _nrt=False, error_model="numpy")(fn)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
