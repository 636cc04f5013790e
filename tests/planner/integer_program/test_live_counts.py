"""What the integer program says of memory, against the simulator."""

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
    """One array is read first and last; a TPU's compiler does not store it whole."""
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


def choices_with(view_cuts):
    """Products cut along their columns, what they read along its rows but for views."""
    model = PRICED.model

    def wanted(group):
        is_product = group.node.label == "dot_general"
        is_weight = group.node.label == "input" and group.node.sizes == (SIZE, SIZE)
        is_last = group.node.label == "transpose"
        return () if is_last else ((2,) if is_product else (1,) if is_weight else (0,))

    numbers = []
    for group, own in zip(model.reduced_graph.classes, model.choices, strict=True):
        cuts = [tuple(factor for factor, _ in s.axes) for s in own]
        numbers.append(
            next(
                i
                for i, s in enumerate(own)
                if cuts[i] == wanted(group) and not s.reductions
            )
        )
    for view in model.shared_values:
        forms = [cuts for cuts, left in view.shardings if not left]
        is_twice = model.reduced_graph.classes[view.producer].node.label == "tanh"
        made = ((), ("data",))
        numbers.append(forms.index(view_cuts if is_twice else made))
    return tuple(numbers)


def bytes_of(choices):
    """As the program says, and as is simulated."""
    said = float(PRICED.pricer.memory_curve(choices).max())
    tactic = PRICED.tactic(Optimum(choices, 0.0, 0.0, 0.0), "auto")
    decided = decide(SPACE.captured, PRICED.work.mesh, (tactic,), Gather.SHARED)
    return said, estimate(decided, SPACE.machine).peak_memory_bytes


@pytest.mark.parametrize("cuts", [((), ()), (("data",), ())], ids=["once", "at use"])
def test_a_gathered_array_is_there_as_long_as_it_is_read(cuts):
    said, simulated = bytes_of(choices_with(cuts))
    assert said == pytest.approx(simulated, rel=0.1)


def squares(x, first, rest):
    """Layers alike, whose weights have one reader each; a product read twice by one op."""
    for weight in (first, *rest):
        x = jnp.tanh(x @ weight)
    y = x @ first
    return (y * y) @ first


def test_every_form_that_is_kept_for_readers_counts():
    weights = shape(64, 64), [shape(64, 64)] * 4
    priced = space_of((squares, (shape(64, 64), *weights)), "tpu-v5p", 4).price(
        Mesh({"data": 4})
    )
    views = {(view.producer, view.result) for view in priced.model.shared_values}
    assert len(views) > 1
    assert views <= priced.pricer.live_counts.copies.keys()


def test_what_a_loop_reads_gathered_is_there_until_it_ends():
    args = shape(SIZE, SIZE), shape(SIZE, SIZE), shape(5, 32, SIZE)
    space, mesh = space_of((recurrent, args), "h100", DEVICES), Mesh({"data": DEVICES})
    tactics = mw.data_parallel("data", "xs"), mw.shard({"w": 0, "v": 0}, "data")
    decided = decide(space.captured, mesh, tactics, Gather.SHARED)
    priced = space.price(mesh)
    choices = read_choices(priced.model, decided.work.state)
    said = float(priced.pricer.memory_curve(choices).max())
    assert said > 2 * 4 * SIZE**2  # both of them, whole
    simulated = estimate(decided, space.machine).peak_memory_bytes
    assert said == pytest.approx(simulated, rel=0.1)


def written_over(x, rows, weight):
    """What a product makes has a few rows replaced, and no one reads it as it was."""
    made = jnp.tanh(x) @ weight
    return jax.lax.dynamic_update_slice(made, rows, (0, 0)).sum(0)


def test_what_is_written_over_does_not_count_beside_what_comes_there():
    args = shape(ROWS, SIZE), shape(8, SIZE), shape(SIZE, SIZE)
    space = space_of((written_over, args), "tpu-v5p", 1)
    mesh = Mesh({"data": 1})
    priced = space.price(mesh)
    whole = (0,) * (len(priced.model.choices) + len(priced.model.shared_values))
    said = float(priced.pricer.memory_curve(whole).max())
    decided = decide(space.captured, mesh, (), Gather.SHARED)
    simulated = estimate(decided, space.machine).peak_memory_bytes
    assert said == pytest.approx(simulated, rel=0.02)
