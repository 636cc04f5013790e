"""Loops whose number of iterations depends on values: named, counted alike everywhere."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import meshwright as mw
from meshwright.errors import CaptureError
from meshwright.predict.roofline.work import program_work
from tests.programs.unknown_loops import PROGRAMS

W, X = (
    jax.ShapeDtypeStruct((1024, 1024), "float32"),
    jax.ShapeDtypeStruct((4096, 1024), "float32"),
)
_QUICK = ("nested", "of_each_example", "conjugate_gradients", "greedy_decode")


def loop(w, x):
    def goes_on(c):
        return (c[0] < 1000) & (jnp.abs(c[1]).max() > 1e-3)

    return lax.while_loop(goes_on, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x))


LINE = f"test_unknown_loops.py:{loop.__code__.co_firstlineno + 4}"


def planned(fn, *args, loops=None):
    return mw.partition(fn, {"d": 8}, [mw.shard({"w": 1}, "d")], loops=loops).plan(
        *args
    )


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_plan_names_each_loop_of_unknown_length(program):
    plan = program.partitioned(8).plan(*program.args)
    assert {int(each.source.rpartition(":")[2]) for each in plan.loops} == program.lines
    assert not any(each.is_stated for each in plan.loops)
    shown = " ".join(plan.describe().split())
    for each in plan.loops:
        assert f"of unknown length, counted as {each.iterations} iteration" in shown
        assert each.source in shown
    assert mw.Plan.from_json(plan.to_json()).loops == plan.loops


@pytest.mark.parametrize(
    "name",
    [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS],
)
def test_programs_with_unknown_loops_equal_one_device(name):
    assert PROGRAMS[name].partitioned(4).check(*PROGRAMS[name].args).ok


def test_all_figures_count_the_same_number_of_iterations():
    few, many = (planned(loop, W, X, loops={LINE: n}).on("tpu-v4") for n in (10, 640))
    assert many.counts == {kind: 64 * n for kind, n in few.counts.items()}
    assert [c.executions for c in many.collectives] == [640, 640]
    assert many.step_time_s == pytest.approx(64 * few.step_time_s, rel=0.01)
    assert many.energy_j == pytest.approx(64 * few.energy_j, rel=0.01)
    assert many.cost_usd == pytest.approx(64 * few.cost_usd, rel=0.01)
    assert many.mfu == pytest.approx(few.mfu, rel=0.01)
    flops = [program_work(plan.decided.captured.program).flops for plan in (few, many)]
    assert flops[1] == 64 * flops[0]
    assert many.peak_memory_bytes == few.peak_memory_bytes
    assert "1 loop of unknown length, counted as 640 iterations, as stated" in str(many)


def test_the_report_names_loops_of_unknown_length(tmp_path):
    plan = planned(loop, W, X).on("tpu-v5e")
    plan.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "1 loop of unknown length, counted as 100 iterations: " in page
    assert "counted as 100 iterations" in plan._repr_html_()


def test_the_condition_of_a_loop_takes_time_too():
    def two_products(w, x):
        return lax.while_loop(lambda x: (x @ w).max() > 0, lambda x: x @ w, x)

    def one_product(w, x):
        return lax.while_loop(lambda x: x.max() > 0, lambda x: x @ w, x)

    times = [
        mw.partition(fn, {"d": 1}, []).plan(W, X).on("tpu-v5e").step_time_s
        for fn in (two_products, one_product)
    ]
    assert 1.5 < times[0] / times[1] < 2.5


# -- stating the number --------------------------------------------------------------------


def _while(x, goes_on=lambda x: x.max() > 0):
    return lax.while_loop(goes_on, jnp.sin, x)


STATED = {
    "what enters": lambda w, x: _while(mw.iterations(x, 7)),
    "a tree that enters": lambda w, x: lax.while_loop(
        lambda c: c[1].max() > 0, lambda c: (c[0] + 1, c[1]), mw.iterations((0, x), 7)
    ),
    "what comes out": lambda w, x: mw.iterations(_while(x), 7),
    "what depends on it": lambda w, x: mw.iterations(_while(x).sum() + 1, 7),
    "what it depends on": lambda w, x: _while(mw.iterations(x, 7) + 1),
    "what is in its body": lambda w, x: lax.while_loop(
        lambda x: x.max() > 0, lambda x: jnp.sin(mw.iterations(x, 7)), x
    ),
    "a loop in a branch": lambda w, x: mw.iterations(
        lax.cond(x[0, 0] > 0, _while, jnp.cos, x), 7
    ),
    "under vmap": lambda w, x: jax.vmap(lambda x: mw.iterations(_while(x), 7))(x),
    "under jvp": lambda w, x: jax.jvp(
        lambda x: mw.iterations(_while(x), 7), (x,), (x,)
    ),
    "under grad": lambda w, x: jax.grad(
        lambda x: mw.iterations(lax.stop_gradient(_while(x)) * x, 7).sum()
    )(x),
    "a value that nobody reads": lambda w, x: (mw.iterations(y := _while(x), 7), y)[1],
}


@pytest.mark.parametrize("fn", STATED.values(), ids=STATED)
def test_iterations_are_of_the_loop_of_a_value(fn):
    captured = mw.partition(fn, {"d": 1}, []).capture(W, X)
    whiles = [op for op in captured.program.walk() if op.kind == "while"]
    assert [op.params["iterations"] for op in whiles] == [7]
    assert not any(op.kind == "iterations" for op in captured.program.walk())


def test_each_of_two_loops_has_its_own_number():
    def two(x):
        first = _while(mw.iterations(x, 3))
        return mw.iterations(_while(first + 1), 5)

    loops = mw.partition(two, {"d": 1}, []).plan(X).loops
    assert [each.iterations for each in loops] == [3, 5]


def test_iterations_change_no_result():
    x = jnp.linspace(-1, 1, 8)
    fn = lambda x: mw.iterations(x * 2, 7)  # noqa: E731  no loop: it runs outside of a plan
    assert (jax.jit(fn)(x) == 2 * x).all()
    step = mw.partition(
        lambda x: _while(mw.iterations(x, 7), lambda x: x.max() > 0.5), {"d": 1}, []
    )
    assert (step(x) == _while(x, lambda x: x.max() > 0.5)).all()


def test_a_loop_with_known_bounds_keeps_its_length():
    def fn(x):
        return lax.fori_loop(0, 10, lambda i, x: jnp.sin(x), mw.iterations(x, 99))

    assert not mw.partition(fn, {"d": 1}, []).plan(X).loops


@pytest.mark.parametrize(
    ("loops", "match"),
    [
        ({"other.py:3": 64}, r"where no loop of unknown length is; there are loops at"),
        ({LINE.replace(":", ":1"): 64}, "did you mean"),
        ({LINE: 0}, "wanted iterations by source line"),
        ({LINE: True}, "wanted iterations by source line"),
    ],
)
def test_wrong_lines_and_numbers_are_refused(loops, match):
    with pytest.raises(CaptureError, match=match):
        planned(loop, W, X, loops=loops)


def test_iterations_without_a_loop_and_wrong_numbers_are_refused():
    with pytest.raises(
        CaptureError, match="is of a value that no loop computes or reads"
    ):
        mw.partition(lambda x: mw.iterations(x + 1, 64), {"d": 1}, []).plan(X)
    for count in (0, True, 2.5):
        with pytest.raises(CaptureError, match="wanted a whole number from 1"):
            mw.iterations(X, count)


def test_a_search_gathers_before_a_loop_rather_than_in_it():
    """A gather of the small weight once pays, compared with gathers of x in each turn."""
    w = jax.ShapeDtypeStruct((256, 256), "float32")
    x = jax.ShapeDtypeStruct((8192, 256), "float32")
    plan = mw.autoplan(loop, (w, x), machine="tpu-v5e", mesh={"d": 4}, budget_s=1.0)
    assert plan.spec("x") == jax.sharding.PartitionSpec("d", None)
    assert not [c for c in plan.collectives if c.executions > 1 and c.bytes > 4]
    assert plan.loops[0].iterations == 100
