"""cuDNN's attention without a GPU: the same numbers on a CPU, its custom call on CUDA."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.app.check.compare_outputs import compare
from meshwright.jax_private import gpu_for_cudnn

RNG = np.random.default_rng(7)
MESH = {"d": 2, "m": 4}
CUTS = [mw.shard({"args.0": 0}, "d"), mw.shard({"args.0": 2}, "m")]


def array(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.bfloat16)


ARGS = array(4, 32, 8, 16), array(4, 32, 4, 16), array(4, 32, 4, 16)
LENGTHS = np.array([32, 5, 17, 1], np.int32)
CASES = {
    "plain": {},
    "window": {"is_causal": True, "local_window_size": (7, 0)},
    "bias": {"bias": array(1, 8, 32, 32)},
    "mask": {"mask": RNG.random((4, 1, 32, 32)) < 0.9, "is_causal": True},
    "lengths": {
        "query_seq_lengths": LENGTHS,
        "key_value_seq_lengths": LENGTHS,
        "is_causal": True,
    },
}


def step_of(implementation, options):
    """The loss, and the gradients of queries, keys and values."""

    def loss(*args):
        out = jax.nn.dot_product_attention(
            *args, implementation=implementation, **options
        )
        return (out.astype(jnp.float32) ** 2).mean()

    return lambda *args: jax.value_and_grad(loss, (0, 1, 2))(*args)


@pytest.mark.parametrize("case", CASES)
def test_cut_attention_gives_the_numbers_of_plain_attention(case):
    step = mw.partition(step_of("cudnn", CASES[case]), MESH, CUTS)
    plan = step.plan(*ARGS)
    assert not plan.whole
    assert sum(c.bytes for c in plan.collectives) <= 4  # the loss alone
    assert step.check(*ARGS).ok
    wanted = jax.jit(step_of("xla", CASES[case]))(*ARGS)
    pairs = zip(jax.tree.leaves(wanted), jax.tree.leaves(step(*ARGS)), strict=True)
    assert all(compare(case, w, g).ok for w, g in pairs)


def test_on_cuda_the_custom_calls_get_the_parts_of_one_device():
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), ARGS)
    step = mw.partition(step_of("cudnn", {"is_causal": True}), MESH, CUTS)
    text = step.trace(*types).lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in text.splitlines() if "__cudnn$fmha" in line]
    names = [re.search(r"@(\S+?)\(", line)[1] for line in calls]
    assert names == ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]
    for line in calls:
        told = re.search(r'backend_config = "(.*?)"', line)[1].replace("\\22", '"')
        scores = json.loads(told)["cudnn_fmha_backend_config"]
        sizes = scores["intermediate_tensor_shape"]["dimensions"]
        assert sizes == ["2", "2", "32", "32"]
        assert scores["mask_type"] == "CAUSAL"


def test_jax_still_refuses_outside_of_planning_and_in_other_threads():
    def refuses() -> str:
        try:
            jax.nn.dot_product_attention(*ARGS, implementation="cudnn")
        except RuntimeError as error:
            return str(error)
        return ""

    told = refuses()
    assert told
    with gpu_for_cudnn(), ThreadPoolExecutor(1) as other:
        assert other.submit(refuses).result() == told
        jax.make_jaxpr(step_of("cudnn", {}))(*ARGS)
    assert refuses() == told
