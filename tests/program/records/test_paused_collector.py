"""The collector waits for the end of a block, and is then as it was."""

import gc

import pytest

from meshwright.program.records.paused_collector import paused_collector


def test_the_collector_waits_and_then_runs_again():
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_an_error():
    with pytest.raises(ValueError, match="inside"), paused_collector():
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_caller_who_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_lie_in_each_other():
    with paused_collector():
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
