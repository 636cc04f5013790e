"""A clang with channels; tests that need one are skipped where none is found."""

from collections.abc import Iterator

import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.compiler import ClangCompiler


@pytest.fixture(scope="session")
def cc() -> Iterator[ClangCompiler]:
    try:
        compiler = ClangCompiler(seconds=60)
    except PolicyError as fault:
        pytest.skip(
            f"needs clang 17 or newer; runs with `make test-policies` ({fault})"
        )
    with compiler:
        yield compiler
