"""The collector waits for the end of a block, and is then as it was."""

import gc

import pytest

from meshwright.program.records.collector import one_collection


def test_the_collector_waits_and_then_runs_again():
    with one_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_an_error():
    with pytest.raises(ValueError, match="inside"), one_collection():
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_caller_who_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with one_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_lie_in_each_other():
    with one_collection():
        with one_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
