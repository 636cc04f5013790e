"""What every program of the zoo owes: it is tested by being listed."""

import math
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from importlib import import_module

import jax
import pytest

import meshwright as mw
from meshwright.app.make_plan import make_plan
from meshwright.partitioner.decide import as_tactics
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.structure.input_roles import find_roles
from zoo.catalogue import WORKLOADS
from zoo.workload import check_numbers

EACH = pytest.mark.parametrize("workload", WORKLOADS, ids=[w.name for w in WORKLOADS])


def is_end(workload, entry):
    """Whether no published size of a program is smaller, or none is larger."""
    values = [e.value for e in workload.published if e.quantity == entry.quantity]
    return entry.value in (min(values), max(values))


PUBLISHED = [
    pytest.param(
        entry,
        id=f"{workload.name}: {entry.model} {entry.quantity}",
        marks=[pytest.mark.slow]
        if entry.quantity == "MACs" or not is_end(workload, entry)
        else [],
    )
    for workload in WORKLOADS
    for entry in workload.published
]


@cache
def tiny(workload):
    """One program for all its strategies, so that the original compiles once."""
    return workload.tiny()


def strategies(workload):
    """Tactics by name, and the mesh for them."""
    (first, _), *_ = workload.mesh.items()
    flat = {first: 8}
    batch = mw.data_parallel(first, workload.batch)
    return {
        "data parallel": (flat, [batch]),
        "fsdp": (flat, [batch, mw.fsdp(first)]),
        "best": (workload.mesh, workload.schedules[workload.best]),
    }


CASES = [
    pytest.param(workload, name, id=f"{workload.name}, {name}")
    for workload in WORKLOADS
    for name in ("data parallel", "fsdp", "best")
]


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "strategy"), CASES)
def test_every_strategy_gives_the_numbers_of_one_device(workload, strategy):
    mesh, tactics = strategies(workload)[strategy]
    fn, args = tiny(workload)
    step = mw.partition(fn, mesh, tactics)
    cut = [leaf for leaf in step.plan(*args).inputs if any(leaf.spec)]
    assert cut, "nothing is cut"
    report = step.check(*args)
    assert report.ok, str(report)


@pytest.fixture
def captured_tiny(workload, monkeypatch):
    """The small form, captured from shapes: to draw its weights takes as long again."""
    made = []

    def arguments():
        fn, args = workload.tiny()
        made.append(fn)
        return args

    with monkeypatch.context() as patched:
        patched.setattr(jax, "jit", lambda fn, **options: fn)
        try:
            args = jax.eval_shape(arguments)
        except jax.errors.TracerArrayConversionError:  # its batch is made of results
            patched.undo()
            args = arguments()
    return mw.partition(made[-1], workload.mesh).capture(*args)


def assert_roles(plan):
    """In the zoo, data are `batch`, parameters `params`, and moments `optimizer`."""
    work, program = plan.decided.work, plan.decided.captured.program
    roles = find_roles(work)
    arrays = {
        path: {*path.split(".")[:-1]}
        for path, value in zip(work.paths, program.inputs, strict=True)
        if value.shape and not value.dtype.startswith("key")
    }
    named = {
        "data": {path for path in arrays if path.startswith("batch.")},
        "params": {path for path, parts in arrays.items() if "params" in parts},
        "optimizer": {path for path, parts in arrays.items() if "optimizer" in parts},
    }
    found = {name: {work.paths[i] for i in getattr(roles, name)} for name in named}
    assert found["data"] == named["data"]
    assert found["params"] >= named["params"]
    assert found["optimizer"] >= named["optimizer"]
    assert not roles.doubts


def cut_by(workload, captured, name):
    """The plan of a schedule, which cuts an input at least."""
    chosen = as_tactics(workload.schedules[name])
    plan = make_plan(captured, mw.Mesh(workload.mesh), chosen, Gather.SHARED)
    assert any(any(leaf.spec) for leaf in plan.inputs), f"{name} cuts nothing"
    return plan


@EACH
def test_the_best_schedule_cuts_the_small_form_with_its_roles_and_every_op_has_a_rule(
    workload, captured_tiny
):
    plan = cut_by(workload, captured_tiny, workload.best)
    assert plan.whole == ()
    assert_roles(plan)
    assert any("params" in leaf.path.split(".") for leaf in plan.inputs)


@pytest.mark.slow
@EACH
def test_every_schedule_cuts_the_small_form(workload, captured_tiny):
    for name in workload.schedules:
        cut_by(workload, captured_tiny, name)


@EACH
def test_a_configuration_with_a_size_of_zero_or_less_is_refused(workload):
    module = import_module(f"zoo.{workload.name}")
    for config in (
        getattr(module, "TINY", None),
        *getattr(module, "SIZES", {}).values(),
    ):
        if config is None:
            continue
        for entry in fields(config):
            value = getattr(config, entry.name)
            if type(value) is int:
                words = f"{entry.name} is at least [01], not -1"
                with pytest.raises(ValueError, match=words):
                    replace(config, **{entry.name: -1})


@EACH
def test_a_real_number_that_cannot_be_meant_is_refused(workload):
    """Ends of a range may be negative; nothing may be infinite or not a number."""
    module = import_module(f"zoo.{workload.name}")
    config = getattr(module, "TINY", None)
    for entry in fields(config) if config else ():
        if entry.type is not float:
            continue
        for number in (math.nan, math.inf):
            words = f"{entry.name} is a finite number, not {number}"
            with pytest.raises(ValueError, match=words):
                replace(config, **{entry.name: number})
        if entry.name not in ("lowest", "highest"):
            with pytest.raises(ValueError, match=f"{entry.name} is at least 0, not -1"):
                replace(config, **{entry.name: -1})


def test_sizes_within_tuples_count_and_some_may_be_zero():
    @dataclass(frozen=True)
    class Sizes:
        width: int = 1
        inner: tuple = ((1, 2), (3,))
        shared: int = 0
        is_gated: bool = False
        rate: float = 0.5
        lowest: float = -1
        kind: str | None = None

    check = partial(check_numbers, may_be_zero=("shared",), may_be_negative=("lowest",))
    check(Sizes())
    with pytest.raises(ValueError, match="shared is at least 1, not 0"):
        check_numbers(Sizes())
    with pytest.raises(ValueError, match="inner is at least 1, not 0"):
        check(Sizes(inner=((1, 0), (3,))))
    with pytest.raises(ValueError, match="lowest is at least 0, not -1"):
        check_numbers(Sizes(), may_be_zero=("shared",))


@EACH
def test_full_sizes_need_no_memory(workload):
    """The first and the last, which are the smallest and the largest of most."""
    assert workload.full, "no published size"
    assert_shapes_only({workload.full[0], workload.full[-1]})


@pytest.mark.slow
@EACH
def test_all_full_sizes_need_no_memory(workload):
    assert_shapes_only(workload.full)


def assert_shapes_only(targets):
    for make in targets:
        _, args = make()
        leaves = jax.tree.leaves(args)
        assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


@pytest.mark.slow
@EACH
def test_training_is_the_same_for_the_same_seed(workload):
    runs = [list(workload.train(seed, 3)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert all(len(run) == 3 for run in runs)
    assert all(workload.metric in measured for run in runs for measured in run)


@pytest.mark.parametrize("entry", PUBLISHED)
def test_counts_are_those_of_the_paper(entry):
    assert entry.count() == pytest.approx(entry.value, rel=entry.within)
