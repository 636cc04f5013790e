"""Sizes of memory as text."""

import pytest

from meshwright.machine.memory_size import memory_bytes, show_bytes


@pytest.mark.parametrize("text", ["1.50 KiB", "84.0 KiB", "3.16 TiB", "16.0 GiB"])
def test_a_size_is_shown_as_it_is_read(text):
    assert show_bytes(memory_bytes(text)) == text
