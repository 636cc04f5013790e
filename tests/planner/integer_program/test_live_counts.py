"""Memory by the integer program's live counts, against the simulator."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.machine import Mesh
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.integer_program.projection import read_choices
from meshwright.planner.solve.optimum import Optimum
from meshwright.predict.estimate import estimate
from tests.planner.programs import recurrent, shape, space_of

ROWS, SIZE, DEVICES = 2**16, 2**13, 4


def read_twice(x, first, rest):
    """An array read first and last; a TPU's compiler does not store it whole."""
    hidden = jnp.tanh(x)
    y = hidden @ first
    for weight in rest:
        y = jnp.tanh(y @ weight)
    return hidden.T @ y


SPACE = space_of(
    (read_twice, (shape(ROWS, SIZE), shape(SIZE, SIZE), [shape(SIZE, SIZE)] * 4)),
    "tpu-v5p",
    DEVICES,
)
PRICED = SPACE.price(Mesh({"data": DEVICES}))


def choices_with(kept):
    """Products split along their columns, operands along rows; the array as in `kept`."""
    model = PRICED.model

    def wanted(node):
        is_product = node.label == "dot_general"
        is_weight = node.label == "input" and node.sizes == (SIZE, SIZE)
        is_last = node.label == "transpose"
        return () if is_last else ((2,) if is_product else (1,) if is_weight else (0,))

    numbers = []
    for each, own in zip(model.reduced_graph.classes, model.choices, strict=True):
        factors = [tuple(factor for factor, _ in s.axes) for s in own]
        numbers.append(
            next(
                i
                for i, s in enumerate(own)
                if factors[i] == wanted(each.node) and not s.reductions
            )
        )
    for shared in model.shared_values:
        splits = [split for split, partial in shared.shardings if not partial]
        is_array = model.reduced_graph.classes[shared.producer].node.label == "tanh"
        produced = ((), ("data",))
        numbers.append(splits.index(kept if is_array else produced))
    return tuple(numbers)


def bytes_of(choices):
    """Peak bytes by the integer program, and simulated."""
    counted = float(PRICED.pricer.memory_curve(choices).max())
    tactic = PRICED.tactic(Optimum(choices, 0.0, 0.0, 0.0), "auto")
    decided = decide(SPACE.captured, PRICED.work.mesh, (tactic,), Gather.SHARED)
    return counted, estimate(decided, SPACE.machine).peak_memory_bytes


@pytest.mark.parametrize("kept", [((), ()), (("data",), ())], ids=["once", "at use"])
def test_a_gathered_array_is_live_as_long_as_it_is_read(kept):
    counted, simulated = bytes_of(choices_with(kept))
    assert counted == pytest.approx(simulated, rel=0.1)


def squares(x, first, rest):
    """Equal layers, whose weights have one reader each; one op reads a product twice."""
    for weight in (first, *rest):
        x = jnp.tanh(x @ weight)
    y = x @ first
    return (y * y) @ first


def test_every_copy_kept_for_several_readers_is_counted():
    weights = shape(64, 64), [shape(64, 64)] * 4
    priced = space_of((squares, (shape(64, 64), *weights)), "tpu-v5p", 4).price(
        Mesh({"data": 4})
    )
    kept = {(each.producer, each.result) for each in priced.model.shared_values}
    assert len(kept) > 1
    assert kept <= priced.pricer.live_counts.copies.keys()


def test_a_loop_invariant_gathered_for_a_loop_is_live_until_it_ends():
    args = shape(SIZE, SIZE), shape(SIZE, SIZE), shape(5, 32, SIZE)
    space, mesh = space_of((recurrent, args), "h100", DEVICES), Mesh({"data": DEVICES})
    tactics = mw.data_parallel("data", "xs"), mw.shard({"w": 0, "v": 0}, "data")
    decided = decide(space.captured, mesh, tactics, Gather.SHARED)
    priced = space.price(mesh)
    choices = read_choices(priced.model, decided.work.state)
    counted = float(priced.pricer.memory_curve(choices).max())
    assert counted > 2 * 4 * SIZE**2  # both weights, gathered
    simulated = estimate(decided, space.machine).peak_memory_bytes
    assert counted == pytest.approx(simulated, rel=0.1)


def overwritten(x, rows, weight):
    """A product whose first rows are overwritten; nothing reads it as it was."""
    made = jnp.tanh(x) @ weight
    return jax.lax.dynamic_update_slice(made, rows, (0, 0)).sum(0)


def test_an_overwritten_value_is_not_counted_besides_its_successor():
    args = shape(ROWS, SIZE), shape(8, SIZE), shape(SIZE, SIZE)
    space = space_of((overwritten, args), "tpu-v5p", 1)
    mesh = Mesh({"data": 1})
    priced = space.price(mesh)
    whole = (0,) * (len(priced.model.choices) + len(priced.model.shared_values))
    counted = float(priced.pricer.memory_curve(whole).max())
    decided = decide(space.captured, mesh, (), Gather.SHARED)
    simulated = estimate(decided, space.machine).peak_memory_bytes
    assert counted == pytest.approx(simulated, rel=0.02)
