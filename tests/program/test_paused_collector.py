"""The garbage collector is off inside a block, and afterwards as it was before."""

import gc

import pytest

from meshwright.program.records import paused_collector


def test_the_collector_is_off_in_the_block_and_on_after_it():
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_after_an_error():
    with pytest.raises(ValueError, match="inside"), paused_collector():
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_nest():
    with paused_collector():
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
