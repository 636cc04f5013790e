"""Every kind of wrong input to the Python interface, with the words that it gets."""

import re

import jax
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import (
    CaptureError,
    MeshError,
    MeshwrightError,
    PlanError,
    RuleError,
    TacticError,
)

X = np.ones((8, 6), np.float32)
STATE = {"params": {"w": np.ones((6, 4), np.float32)}, "step": np.int32(0)}


def step(state, batch):
    return mw.tag(batch @ state["params"]["w"], "product")


def plan(*tactics, mesh=None, fn=step, args=(STATE, X), **options):
    return mw.partition(fn, mesh or {"data": 4}, tactics, **options).plan(*args)


def refuses(error, words):
    return pytest.raises(error, match=re.escape(words))


# -- tactics ---------------------------------------------------------------------------

TACTICS = {
    "pattern 'batsh' matches nothing; the program's leaves are: batch": (
        mw.shard({"batsh": 0}, axis="data"),
    ),
    "did you mean 'state.params.**'?": (mw.shard({"state.params": 0}, axis="data"),),
    "pattern 'tag:sum' matches nothing; the program's tags are: tag:product": (
        mw.replicate("tag:sum"),
    ),
    "dim 2 is out of range for batch, which is f32[8, 6] with 2 dims": (
        mw.shard({"batch": 2}, axis="data"),
    ),
    "dim -3 is out of range for batch": (mw.shard({"batch": -3}, axis="data"),),
    "dim 5 is out of range for state.step, which is i32[] with 0 dims": (
        mw.shard(lambda path, value: 5 if path == "state.step" else None, axis="data"),
    ),
    "dim 'rows' is out of range for batch": (
        mw.shard({"batch": lambda path, value: "rows"}, axis="data"),
    ),
    "'data' is no tactic; wanted mw.shard(...) and the like": ("data",),
    "axis 'model' is not in the mesh, which has data=4": (
        mw.shard({"batch": 0}, axis="model"),
    ),
    "a pattern is empty; the program's leaves are: state.params.w, state.step, batch": (
        mw.shard({"": 0}, axis="data"),
    ),
    "axis ['data'] is no name; wanted the name of one axis of the mesh, which has": (
        mw.shard({"batch": 0}, axis=["data"]),
    ),
    "axis ('data', 'rows') is no name; wanted the name of one axis": (
        mw.fsdp(("data", "rows")),
    ),
    "axis None is no name": (mw.data_parallel(None),),
    "axis 3 is no name": (mw.replicate("batch", axis=3),),
    "axis 'rows' is not in the mesh, which has data=4": (
        mw.replicate("batch", axis="rows"),
    ),
    "axis 'model' is not in the mesh, which has data=4; needed are data, model": (
        mw.shard({"batch": 0}, axis="data"),
        mw.megatron("model"),
    ),
    "axes 'rows' and 'model' are not in the mesh, which has data=4; needed are": (
        mw.replicate("batch", axis=("rows", "data")),
        mw.megatron("model"),
    ),
}


@pytest.mark.parametrize("words", TACTICS)
def test_a_tactic_that_does_not_fit_is_refused(words):
    with refuses((TacticError, MeshError), words):
        plan(*TACTICS[words])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: mw.shard({"x": 1.5}, "a"),
            "dim of 'x' is 1.5; wanted an int, REPL",
        ),
        (lambda: mw.shard({"x": True}, "a"), "dim of 'x' is True; wanted an int"),
        (
            lambda: mw.shard("x", "a"),
            "shard wants a mapping from patterns to dims, got",
        ),
        (lambda: mw.replicate(), "replicate wants at least one pattern"),
        (
            lambda: mw.shard({0: 0}, "a"),
            "shard: 0 is no pattern; wanted a text such as",
        ),
        (lambda: mw.replicate(None), "replicate: None is no pattern; wanted a text"),
        (lambda: mw.replicate(["x"]), "replicate: ['x'] is no pattern"),
        (lambda: mw.data_parallel("a", 1), "data_parallel: 1 is no pattern"),
        (
            lambda: mw.data_parallel("a", {"x": 1}),
            "data_parallel: {'x': 1} is no pattern",
        ),
    ],
)
def test_a_tactic_with_impossible_arguments_is_refused_when_it_is_made(make, words):
    with refuses(TacticError, words):
        make()


def test_a_dim_that_cannot_be_partitioned_is_reported_and_no_error():
    refused = plan(mw.shard({"batch": 1}, axis="data")).steps[-1].refused
    assert refused == ("batch along 'data': 4 parts do not divide extent 6",)


# -- meshes ----------------------------------------------------------------------------

MESHES = {
    "a mesh needs at least one axis, such as {'data': 8}": dict,
    "axis 'data' has size 0; wanted an int >= 1": lambda: {"data": 0},
    "axis 'data' has size 2.0; wanted an int >= 1": lambda: {"data": 2.0},
    "axis name 'a b' is empty or holds one of": lambda: {"a b": 2},
    "7 is no mesh; wanted mw.Mesh, jax.sharding.Mesh or axis sizes": lambda: 7,
    "1 devices do not fill mesh data=4 of 4": lambda: mw.Mesh({"data": 4}, ["cpu"]),
    "'cpu' is no device; wanted devices of jax.devices(), in one list": lambda: mw.Mesh(
        {"data": 2}, ["cpu", "cpu"]
    ),
    "stands in mesh data=2 more than once": lambda: mw.Mesh(
        {"data": 2}, jax.devices()[:1] * 2
    ),
    "devices are 2; wanted a list of jax.devices()": lambda: mw.Mesh({"data": 2}, 2),
    "axes are None; wanted their sizes by name, such as": lambda: mw.Mesh(None),
    "axes are [('data', 2)]; wanted their sizes": lambda: mw.Mesh([("data", 2)]),
}


@pytest.mark.parametrize("words", MESHES)
def test_an_impossible_mesh_is_refused(words):
    with refuses(MeshError, words):
        mw.partition(step, MESHES[words](), ())


def test_too_few_devices_say_how_to_make_virtual_ones():
    partitioned = mw.partition(step, {"data": 16}, ())
    assert partitioned.plan(STATE, X).mesh.num_devices == 16
    words = (
        "mesh data=16 needs 16 devices, but JAX sees 8 (cpu); to try it on one machine"
        ", set XLA_FLAGS=--xla_force_host_platform_device_count=16 before JAX starts"
    )
    with refuses(MeshError, words):
        partitioned(STATE, X)
    with refuses(MeshError, words):
        _ = partitioned.plan(STATE, X).in_shardings


# -- options ---------------------------------------------------------------------------

OPTIONS = {
    "gather is 'never'; wanted one of 'at_use', 'shared'": {"gather": "never"},
    "argument number 2 is out of range; there are ['state', 'batch']": {
        "static_argnums": 2
    },
    "argument number -3 is out of range": {"donate_argnums": (0, -3)},
    "no parameter named ['stat']; there are ['state', 'batch']": {
        "donate_argnames": "stat"
    },
    "no parameter named ['mode']; there are ['state', 'batch']": {
        "static_argnames": ("mode",)
    },
    "arguments are given as '1'; wanted their numbers": {"static_argnums": "1"},
    "arguments are given as 1.0; wanted their numbers": {"donate_argnums": 1.0},
    "arguments are given as 1; wanted their names": {"static_argnames": 1},
    "arguments are given as [None]; wanted their names": {"donate_argnames": [None]},
}


@pytest.mark.parametrize("words", OPTIONS)
def test_an_option_that_does_not_fit_is_refused(words):
    with refuses(PlanError, words):
        mw.partition(step, {"data": 4}, (), **OPTIONS[words])


def test_an_unhashable_static_argument_is_refused():
    fn = lambda x, n: x * n[0]  # noqa: E731
    partitioned = mw.partition(fn, {"data": 4}, (), static_argnames="n")
    with refuses(PlanError, "static arguments must be hashable, got {'n': [2]}"):
        partitioned(X, [2])


# -- arguments -------------------------------------------------------------------------


def test_an_argument_that_is_no_array_is_named():
    words = "batch is a str, not an array; pass it in static_argnums or static_argnames"
    with refuses(CaptureError, words):
        plan(args=(STATE, "text"))
    with refuses(CaptureError, "state.params.w is a set, not an array"):
        plan(args=({"params": {"w": {1}}}, X))


def test_ordered_effects_are_refused():
    def speak(x):
        jax.debug.print("{}", x, ordered=True)
        return x

    with refuses(CaptureError, "have no meaning on several devices; use debug.print("):
        plan(fn=speak, args=(X,))


def test_an_error_that_the_users_function_raises_reaches_the_user():
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        plan(args=(STATE, X.T))


# -- rules and plans -------------------------------------------------------------------


def test_a_second_rule_for_an_op_is_refused():
    with refuses(RuleError, "op 'add' has a rule already"):
        mw.rule("add")(lambda op: "i,i->i")


PLANS = {
    "this is no plan: it is no JSON (JSONDecodeError": "garbage",
    "this is no plan: format is None; wanted 7": "{}",
    "this is no plan: it is []; wanted an object": "[]",
    "this is no plan: it is no JSON (RecursionError": "[" * 100_000,
    "this is no plan: format is 99; wanted 7: make it again": '{"format": 99}',
    "this is no plan: it lacks mesh": '{"format": 7}',
}


@pytest.mark.parametrize("words", PLANS)
def test_a_text_that_is_no_plan_is_refused(words):
    with refuses(PlanError, words):
        mw.Plan.from_json(PLANS[words])


def test_a_leaf_that_a_plan_does_not_have_is_refused():
    with refuses(
        PlanError, "no leaf 'x'; there are ['state.params.w', 'state.step', 'ba"
    ):
        plan().spec("x")


def test_all_errors_are_meshwright_errors():
    names = [v for v in vars(mw.errors).values() if isinstance(v, type)]
    found = {v for v in names if v.__module__ == "meshwright.errors"}
    errors = found - {mw.MeshwrightWarning}
    assert all(issubclass(error, MeshwrightError) for error in errors)


# -- what JAX itself would say otherwise -------------------------------------------------


def branches(state, batch):
    if batch.sum() > 0:
        return state
    return batch


def indexes(state, batch):
    return [1, 2, 3][state["step"]] * batch


def selects(state, batch):
    return batch[batch > 0]


def converts(state, batch):
    return np.asarray(batch) + 1


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (branches, r"which depends on batch at \S*test_errors.py:\d+: if batch.sum"),
        (indexes, r"which depends on state.step at \S*test_errors.py:\d+: return \[1"),
        (
            selects,
            r"value of an array at \S*test_errors.py:\d+: return batch\[batch",
        ),
        (
            converts,
            r"which depends on batch at \S*test_errors.py:\d+: return np.asarray",
        ),
    ],
    ids=["branch", "index", "mask", "numpy"],
)
def test_python_that_needs_a_value_is_named_with_its_line(fn, words):
    with pytest.raises(CaptureError, match=words):
        plan(fn=fn)


def test_what_users_mean_is_guessed():
    search = {"machine": "tpu-v5e", "chips": 4}
    with refuses(PlanError, "memory is 80 bytes of a device; did you mean '80GiB'"):
        mw.autoplan(step, (STATE, X), **search, memory=80)
    with refuses(PlanError, "args is a ndarray; wanted the arguments of the function"):
        mw.autoplan(np.tanh, X, **search)
    with refuses(MeshwrightError, "no machine 'TPU v5e'; did you mean 'tpu-v5e'"):
        mw.machine("TPU v5e")


def search(**options):
    return mw.autoplan(step, (STATE, X), machine="tpu-v5e", chips=4, **options)


MISUSES = {
    "tactics are None; wanted a list": lambda: mw.partition(step, {"a": 2}, None),
    "a plan goes where the mesh is": lambda: mw.partition(step, {"a": 2}, plan()),
    "give its `fn` instead": lambda: mw.partition(mw.partition(step, {"a": 2}), {"a": 2}),
    "such as {'data': 8}": lambda: mw.partition(step, "data=8"),
    "state.w is a ShapeDtypeStruct, which has no numbers": lambda: mw.partition(
        lambda state: state["w"] * 2, {"a": 1}
    ).check({"w": jax.ShapeDtypeStruct((4,), np.float32)}),
    "x is a ShapeDtypeStruct, which has no numbers": lambda: mw.partition(
        lambda x: x * 2, {"a": 1}
    )(jax.ShapeDtypeStruct((4,), np.float32)),
    "mw.Plan.load(path) reads a file": lambda: mw.diff(plan(), "plan.json"),
    "a file is read by mw.Plan.load(path)": lambda: mw.Plan.from_json("plan.json"),
    "budget_s is '5'; wanted seconds": lambda: mw.autoplan(
        step, (STATE, X), machine="tpu-v5e", chips=4, budget_s="5"
    ),
    "memory is '16 gigs'; wanted a size such as '80GiB'": lambda: mw.autoplan(
        step, (STATE, X), machine="tpu-v5e", chips=4, memory="16 gigs"
    ),
    "did you mean '16GiB'": lambda: mw.auto("a", machine="h100", memory=16),
    "'many' tokens per step; wanted 1 or more": lambda: plan().with_tokens("many"),
    "path is None; wanted that of a file that save wrote": lambda: mw.Plan.load(None),
    "cannot read a plan from a\0b: embedded null": lambda: mw.Plan.load("a\0b"),
    "cannot write 'a\\x00b': embedded null byte": lambda: plan().save("a\0b"),
    "True tokens per step; wanted 1 or more": lambda: plan().with_tokens(True),
    "others holds 'x'; wanted a list of plans": lambda: plan().report("a.html", "x"),
    "others is 'None'; wanted a list of plans": lambda: plan().trace("a.json", None),
    "others is 'step: mesh data=4, 4 devices": lambda: plan().report("a.html", plan()),
    "there is no place ['iowa']": lambda: plan().on("tpu-v5e", ["iowa"]),
    "there is no machine None; there are": lambda: plan().on(None),
    "there is no machine ['tpu-v5e']": lambda: mw.machine(["tpu-v5e"]),
    "Mesh(sizes=(('data', 4),)": lambda: plan().annotate(step, mw.Mesh({"data": 4})),
    "{'data': 4} is no mesh of JAX; wanted one as of": lambda: plan().annotate(
        step, {"data": 4}
    ),
    "the name of a tag is ": lambda: mw.tag("product", X),
    "a rule is for names of primitives, such as 'sin'; got (3,)": lambda: mw.rule(3),
    "got ()": lambda: mw.rule(),
    "the rule of 'new' is 'i->i'; wanted a function of": lambda: mw.rule("new")("i->i"),
    "batch cannot be an array of JAX: Dtype object": lambda: plan(
        args=(STATE, np.array([None]))
    ),
    "batch cannot be an array of JAX: Python int": lambda: plan(args=(STATE, 2**40)),
    "returns a str at out.0; wanted arrays, numbers": lambda: plan(
        fn=lambda x: ("ok", x), args=(X,)
    ),
    "returns a set at out; wanted": lambda: plan(fn=lambda x: {1}, args=(X,)),
    "seed is 'x'; wanted a whole number": lambda: search(seed="x"),
    "seed is -1; wanted a whole number from 0 to 2147483647": lambda: search(seed=-1),
    "seed is 2147483648; wanted": lambda: search(seed=2**31),
    "seed is None; wanted a whole number": lambda: search(seed=None),
    "budget_s is True; wanted seconds": lambda: search(budget_s=True),
    "most_axes is True; wanted 1, 2 or 3": lambda: search(most_axes=True),
    "on_progress is 3; wanted a function": lambda: search(on_progress=3),
    "experts is 'no'; wanted True or False": lambda: search(experts="no"),
    "auto: seed is 1.5; wanted": lambda: mw.auto("a", machine="h100", seed=1.5),
    "auto: budget_s is '5'": lambda: mw.auto("a", machine="h100", budget_s="5"),
    "did you mean '80GiB'": lambda: mw.auto("a", machine="h100", memory=80),
    "memory is 'much'; wanted": lambda: mw.auto("a", machine="h100", memory="much"),
    "init wants a function that returns the state, got 3": lambda: mw.partition(
        step, {"a": 1}
    ).init(3),
    "arguments are given as 'state'; wanted their numbers": lambda: mw.partition(
        step, {"a": 1}
    ).init(lambda: STATE, argnum="state"),
    "keep is 3; wanted names of ops": lambda: mw.recompute(3),
    "wanted a multiple of 2": lambda: plan(mesh={"a": 3}).on("tpu-v3"),
    "does not run; step = mw.partition(step, plan)": lambda: plan()(STATE, X),
    "the function first, then its plan: mw.partition(fn, plan)": lambda: mw.partition(
        plan(), {"a": 1}
    ),
    "in machine='cpu', chips=8": lambda: mw.autoplan(
        step, (STATE, X), machine="cpu-8"
    ),
    "'tpu-v4-8'; chips are given apart": lambda: mw.machine("tpu-v4-8"),
}  # fmt: skip


@pytest.mark.parametrize("words", MISUSES)
def test_a_misuse_is_explained(words):
    with refuses(MeshwrightError, words):
        MISUSES[words]()
