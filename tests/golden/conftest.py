"""Golden texts: `MESHWRIGHT_UPDATE_GOLDEN=1 pytest tests/golden` writes them anew."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with the one that is kept under a name."""

    def compare(name: str, text: str) -> None:
        path = HERE / f"{name}.txt"
        if os.environ.get("MESHWRIGHT_UPDATE_GOLDEN"):
            path.write_text(f"{text}\n", encoding="utf-8")
        assert f"{text}\n" == path.read_text(encoding="utf-8")

    return compare
