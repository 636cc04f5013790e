"""Rewritten networks compute, differentiate, and are written as source that does so."""

from random import Random

import jax
import numpy as np
import pytest

from meshwright.features.codesign.nas.properties.properties import (
    distance,
    properties_of,
    target_of,
)
from meshwright.features.codesign.nas.rewriting.cones import cones_of
from meshwright.features.codesign.nas.rewriting.cpu_network import cpu_network
from meshwright.features.codesign.nas.rewriting.network import capture_network
from meshwright.features.codesign.nas.rewriting.propose import (
    METHODS,
    cone_properties,
    propose,
)
from meshwright.features.codesign.nas.rewriting.replace import replace_cone
from meshwright.features.codesign.nas.rewriting.roles import roles_of
from meshwright.features.codesign.nas.rewriting.source import arrays_of, source_of
from meshwright.features.codesign.nas.synthesis.choices import Typed
from meshwright.features.codesign.nas.synthesis.synthesize import synthesize
from tests.features.codesign.nas.rewriting.models import apply, init, looped, task

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(16, 6, 8)).astype(np.float32)


@pytest.mark.parametrize("fn", [apply, looped])
def test_a_captured_network_is_the_model(fn):
    given = task(fn)
    network = given.network()
    weights = network.initial(given.leaves(0), KEY)
    np.testing.assert_allclose(network(weights, X), fn(init(KEY), X), rtol=1e-5)


def test_a_cone_is_closed_but_for_its_output():
    network = task().network()
    ops = network.program.ops
    for cone in cones_of(network, share=1.0):
        made = {r for at in cone.ops for r in ops[at].results}
        read = {a for at in cone.ops for a in ops[at].operands}
        outside = [op for at, op in enumerate(ops) if at not in cone.ops]
        assert not any(made - {cone.output} & set(op.operands) for op in outside)
        assert (read & network.activations) - made == set(cone.inputs)
        assert cone.output in made


@pytest.mark.parametrize("method", METHODS)
def test_a_proposal_runs_and_its_source_computes_the_same(method: str):
    given = task()
    network = given.network()
    for seed in range(4):
        found = propose(
            network, method, lambda n: n.flops < network.flops, Random(seed)
        )
        assert found is not None
        assert found.flops < network.flops
        weights = found.initial(given.leaves(0), KEY)
        scores = found(weights, X)
        assert scores.shape == (16, 2)
        module: dict = {"__file__": "model.py"}
        exec(source_of(found, "A model."), module)
        arrays = arrays_of(found, weights)
        np.testing.assert_array_equal(module["apply"](arrays, X), scores)
        apply = module["apply"]
        gradients = jax.grad(lambda w, apply=apply: apply(w, X).sum())(arrays)
        assert set(gradients) == set(arrays)


@pytest.mark.parametrize(("inside", "each"), [(1, 1), (1, 2), (2, 1), (3, 2)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_grouped_convolutions_train_as_equal_ones(inside: int, each: int, rank: int):
    rng = np.random.default_rng([inside, each, rank])
    groups = int(rng.integers(2, 5))
    numbers = jax.lax.ConvDimensionNumbers(
        *(tuple(int(d) for d in rng.permutation(rank + 2)) for _ in range(3))
    )

    def drawn(places: tuple[int, ...], sizes: list[int]):
        shape = [sizes[places.index(d)] for d in range(len(places))]
        return rng.normal(size=shape).astype(np.float32)

    strides = [int(n) for n in rng.integers(1, 3, rank)]
    pads = [(int(a), int(b)) for a, b in rng.integers(-1, 3, (rank, 2))]

    def fn(kernel, x):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            strides,
            pads,
            dimension_numbers=numbers,
            feature_group_count=groups,
        )

    kernel = drawn(numbers.rhs_spec, [groups * each, inside, *rng.integers(1, 4, rank)])
    x = drawn(numbers.lhs_spec, [2, groups * inside, *rng.integers(5, 7, rank)])
    network = capture_network(fn, kernel, x)
    trained = cpu_network(network)
    assert f"group_count={groups}" not in str(jax.make_jaxpr(trained)([kernel], x))
    for derived in (lambda n: n, lambda n: jax.grad(lambda w, x: (n(w, x) ** 2).sum())):
        found, wanted = (derived(n)([kernel], x) for n in (trained, network))
        np.testing.assert_allclose(
            np.asarray(found), np.asarray(wanted), rtol=1e-3, atol=1e-3
        )
    half = [kernel.astype(jax.numpy.bfloat16)], x.astype(jax.numpy.bfloat16)
    sums = cpu_network(capture_network(fn, half[0][0], half[1]))(*half)
    wanted = network(*(jax.tree.map(lambda a: a.astype(np.float32), half)))
    np.testing.assert_allclose(
        np.asarray(sums, np.float32), wanted, rtol=2**-7, atol=2**-7
    )


def test_a_dilated_grouped_convolution_stays_as_it_is():
    def fn(kernel, x):
        return jax.lax.conv_general_dilated(
            x, kernel, (1,), "SAME", rhs_dilation=(2,), feature_group_count=2
        )

    network = capture_network(fn, np.ones((4, 2, 3), "f"), np.ones((2, 4, 8), "f"))
    (op,) = cpu_network(network).program.ops
    assert op.params["feature_group_count"] == 2


def test_what_is_synthesised_has_the_properties_in_the_program():
    network = task().network()
    roles = roles_of(network)
    cone = max(cones_of(network), key=lambda c: len(c.ops) if c.output in roles else 0)
    target = target_of(cone_properties(network, cone))
    typed = [Typed(v.shape, roles[v]) for v in (cone.output, *cone.inputs)]
    for seed in range(5):
        expression = synthesize(target, typed[0], typed[1:], Random(seed))
        assert expression is not None
        found = replace_cone(network, cone, expression).program
        output = network.program.outputs[0]
        before = properties_of(network.program, output, network.program.inputs[-1:])
        now = properties_of(found, found.outputs[0], found.inputs[-1:])
        assert distance(target_of(before), now) == 0


def test_weights_that_nothing_reads_are_dropped_and_the_others_kept():
    network = task().network()
    cone = next(c for c in cones_of(network, 1.0) if len(c.ops) > 3)
    identity = synthesize(
        target_of(cone_properties(network, cone)),
        *_ends(network, cone),
        Random(0),
    )
    assert identity is not None
    found = replace_cone(network, cone, identity)
    names = [weight.name for weight in found.weights]
    assert len(set(names)) == len(names)
    kept = {weight.name for weight in network.weights} & set(names)
    assert kept, "a cone does not read all weights"


def _ends(network, cone):
    roles = roles_of(network)
    typed = [Typed(v.shape, roles[v]) for v in (cone.output, *cone.inputs)]
    return typed[0], typed[1:]
