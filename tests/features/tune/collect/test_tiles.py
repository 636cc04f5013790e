"""Collected tilings without IREE: interruption, failures, and programs without a kernel."""

import jax.numpy as jnp
import pytest

from meshwright.errors import CompilerError, LearnedError
from meshwright.features.tune.collect import tiles
from meshwright.features.tune.collect.layouts import CollectionPlan
from meshwright.features.tune.collect.tiles import collect_tiles
from meshwright.features.tune.iree.find_kernels import FoundKernels
from meshwright.features.tune.iree.space import TileSpace
from tests.features.tune.iree.kernels import matmul_kernel

PLAN = CollectionPlan(configs=6, passes=2, seed=0)
ARGS = (jnp.ones((64, 96)), jnp.ones((96, 128)))


def product(x, w):
    return jnp.tanh(x @ w)


class FakeProgram:
    """A program that IREE compiles, and that computes what JAX computes."""

    @classmethod
    def of(cls, fn, args):
        return cls()

    def compile(self, spec=""):
        return spec

    def expected(self, fn):
        return []

    def is_right(self, code, expected):
        return True


class FakeBench:
    """A kernel of which the third tiling does not compile."""

    def __init__(self, kernel, seed):
        self.kernel, self.programs = kernel, {None: "default"}

    def build(self, tiling):
        if tiling is None:
            return
        if tiling == TileSpace.of(self.kernel).sample(6, 0)[2]:
            raise CompilerError("large vector sizes")
        self.programs[tiling] = str(tiling)


@pytest.fixture
def timed(monkeypatch):
    """The programs that were timed, in order; each takes one nanosecond more."""
    programs = []

    def time_one(program):
        programs.append(program)
        return 1000 + len(programs)

    found = FoundKernels({matmul_kernel(): ("dispatch",)}, {})
    monkeypatch.setattr(tiles, "find_kernels", lambda text: found)
    monkeypatch.setattr(tiles, "IreeProgram", FakeProgram)
    monkeypatch.setattr(tiles, "KernelBench", FakeBench)
    monkeypatch.setattr(tiles, "thread_ns", time_one)
    monkeypatch.setattr(tiles, "version", lambda: "3.13.0")
    return programs


def test_an_interrupted_collection_of_tilings_repeats_no_measurement(
    tmp_path, timed, monkeypatch
):
    whole = collect_tiles("whole", product, ARGS, PLAN, tmp_path)
    total = len(timed)
    timed.clear()
    time_one = tiles.thread_ns

    def interrupt(program):
        if len(timed) == 3:
            raise KeyboardInterrupt
        return time_one(program)

    monkeypatch.setattr(tiles, "thread_ns", interrupt)
    with pytest.raises(KeyboardInterrupt):
        collect_tiles("it", product, ARGS, PLAN, tmp_path)
    monkeypatch.setattr(tiles, "thread_ns", time_one)
    found = collect_tiles("it", product, ARGS, PLAN, tmp_path)
    assert len(timed) == total
    assert found.provenance.pass_ns == whole.provenance.pass_ns


def test_a_tiling_that_does_not_compile_is_kept_as_an_error(tmp_path, timed):
    measured = collect_tiles("it", product, ARGS, PLAN, tmp_path)
    assert measured.num_configs == PLAN.configs - 1
    ((number, error),) = measured.provenance.errors
    assert number == "3"
    assert error.startswith("distribution = [")
    assert error.endswith("large vector sizes")


def test_a_function_without_a_kernel_to_tile_is_refused_with_the_reason(
    tmp_path, timed, monkeypatch
):
    none = FoundKernels({}, {"dispatch 0": "it has no matmul or convolution"})
    monkeypatch.setattr(tiles, "find_kernels", lambda text: none)
    with pytest.raises(
        LearnedError,
        match=r"it has 0 kernels .* give a function of one matmul or convolution "
        r"\(dispatch 0: it has no matmul or convolution\)",
    ):
        collect_tiles("it", jnp.tanh, (jnp.ones(3),), PLAN, tmp_path)
