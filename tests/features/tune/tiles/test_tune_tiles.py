"""`mw.tune(..., backend="iree-cpu")` and the collector of tilings, with IREE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import LearnedError
from meshwright.features.tune.collect.layouts import CollectionPlan
from meshwright.features.tune.collect.tiles import (
    collect_tiles,
    recorded_kernel,
    tiling_of,
)
from meshwright.features.tune.iree.bench import KernelBench
from meshwright.features.tune.iree.find_kernels import find_kernels
from meshwright.features.tune.iree.program import IreeProgram
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.spec import tuning_spec
from meshwright.features.tune.iree.toolchain import CompilePhase, compile_program
from meshwright.features.tune.learned.data_files import read_npz, write_npz
from meshwright.features.tune.tiles.tuned_tiles import TunedTiles

pytestmark = pytest.mark.iree

CONV = ("NHWC", "HWIO", "NHWC")


def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=CONV)


def network(params, x):
    y = jax.nn.relu(conv(x, params["k"]))
    y = jnp.mean(y, axis=(1, 2)) @ params["w"]
    return {"scores": jax.nn.softmax(y), "wide": y > 0}


def arrays(*shapes):
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]


def arguments():
    k, w, x = arrays((3, 3, 8, 32), (32, 16), (2, 12, 12, 8))
    return {"k": k, "w": w}, x


def kernels_of(fn, *args):
    found = find_kernels(IreeProgram.of(fn, args).text)
    return [str(kernel) for kernel in found.kernels], list(found.others.values())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiles") / "verdicts.jsonl"
    result = mw.tune(network, arguments(), backend="iree-cpu", budget=4, resume=path)
    return result, path


def test_a_tuned_function_returns_what_jax_returns(tuned):
    result, _ = tuned
    found, wanted = result(*arguments()), network(*arguments())
    np.testing.assert_allclose(found["scores"], wanted["scores"], rtol=1e-4, atol=1e-5)
    assert found["wide"].dtype == jnp.bool_
    np.testing.assert_array_equal(found["wide"], wanted["wide"])


def test_no_kernel_and_no_program_is_slower_than_with_the_compilers_tiles(tuned):
    result, _ = tuned
    assert result.kernels
    assert all(kernel.measured <= 4 for kernel in result.kernels)
    assert all(kernel.speed_up >= 1 for kernel in result.kernels)
    assert result.speed_up >= 1
    assert TunedTiles.from_json(result.to_json()) == result


def test_a_journal_spares_measurements_in_another_program(tuned, monkeypatch):
    result, path = tuned

    def refuse(self, tiling):
        raise AssertionError(f"{tiling} was measured again")

    monkeypatch.setattr(KernelBench, "build", refuse)

    def other(params, x):
        return jnp.sin(network(params, x)["scores"])

    again = mw.tune(other, arguments(), backend="iree-cpu", budget=4, resume=path)
    known = {kernel.fingerprint: kernel.tiles for kernel in result.kernels}
    shared = [k for k in again.kernels if k.fingerprint in known]
    assert shared


def test_iree_takes_the_tiles_of_several_kernels_from_one_spec():
    program = IreeProgram.of(network, arguments())
    chosen = {
        kernel: TileSpace.of(kernel).sample(1, 5)[0]
        for kernel in find_kernels(program.text).kernels
    }
    assert len(chosen) == 2
    spec = tuning_spec(chosen)
    text = compile_program(
        program.text, CompilePhase.CONFIGURATIONS, spec=spec
    ).decode()
    for tiling in chosen.values():
        assert tiling.attribute in text
    assert program.is_right(program.compile(spec), program.expected(network))


def test_kernels_are_found_and_others_are_named_with_a_reason():
    x, w, b = arrays((32, 64), (64, 48), (48,))
    found, others = kernels_of(lambda x, w, b: jnp.tanh(x @ w + b), x, w, b)
    assert found == ["matmul 32x48x64 f32 + addf, tanh"]
    assert others == []
    found, others = kernels_of(lambda x: jax.nn.softmax(x), x)
    assert found == []
    assert others == ["it has no matmul or convolution"]
    found, others = kernels_of(conv, *arrays((1, 8, 8, 4), (3, 3, 4, 8)))
    assert found == []  # batch 1: its unit dim is gone before tiles are chosen
    assert others == ["IREE rewrites its 6 loops before it chooses tiles"]


def test_a_collection_begins_with_the_default_and_is_read_back(tmp_path):
    args = arrays((16, 32), (32, 24))
    plan = CollectionPlan(5, 2, 0)

    def product(x, w):
        return jnp.tanh(x @ w)

    measured = collect_tiles("product", product, args, plan, tmp_path)
    assert measured.default_config == 0
    assert measured.targets[0] == 1
    again = read_npz(write_npz(tmp_path, measured))
    kernel = recorded_kernel(again)
    assert str(kernel) == "matmul 16x24x32 f32 + tanh"
    assert tiling_of(kernel, again.config_feat[0]) == kernel.default
    assert len(again.provenance.spread) == again.num_configs
    times = (tmp_path / "product.partial.jsonl").read_text()
    collect_tiles("product", product, args, plan, tmp_path)
    assert (tmp_path / "product.partial.jsonl").read_text() == times
    with pytest.raises(LearnedError, match="has 2 kernels whose tiles can be chosen"):
        collect_tiles("two", network, arguments(), plan, tmp_path)
