"""`autoplan(confirm=True)`: the best plan that the machine's compiler accepts."""

import importlib.util
from functools import cache

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.app.autoplan import find_plan
from meshwright.app.confirm.account import Account
from meshwright.app.confirm.confirmation import Confirmation
from meshwright.errors import CompilerError, PlanError
from meshwright.planner.driver.request import SearchRequest

MACHINE = "tpu-v5e"


def shape(*extents, dtype="float32"):
    return jax.ShapeDtypeStruct(extents, dtype)


def step(params, x):
    def loss(params):
        y = jnp.tanh(x @ params["up"]) @ params["down"]
        return jnp.mean((y - x) ** 2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params))


ARGS = {"up": shape(64, 256), "down": shape(256, 64)}, shape(512, 64)


class FakeCompiler:
    """Accepts a plan unless an answer for its turn says otherwise.

    answers: in turn, an error to raise, or the bytes that the compiled step needs.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.compiled = []

    def __call__(self, plan, *options):
        self.compiled.append(plan)
        answer = self.answers.pop(0) if self.answers else 1000
        if isinstance(answer, Exception):
            raise answer
        account = Account(answer, True, None, None, None)
        return Confirmation(MACHINE, 8, 16e9, account, account, 1.0, "")


def search(compiler, **options):
    asked = {"machine": MACHINE, "chips": 4, "mesh": None, "budget_s": 5.0}
    request = SearchRequest(**(asked | options), confirm=compiler is not None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshwright.app.autoplan.find_backend", lambda machine: None)
        patch.setattr("meshwright.app.confirm.first_compiled.confirm_placed", compiler)
        return find_plan(step, ARGS, request)


@cache
def without_compiler(kind="program"):
    return search(None, search=kind)


def failed(text="user->opcode() == kAdd"):
    return CompilerError(f"the compiler failed: {text}")


@pytest.mark.parametrize("kind", ["program", "tree"])
def test_where_the_compiler_fails_the_next_plan_is_returned_with_a_note(kind):
    best = without_compiler(kind)
    compiler = FakeCompiler(failed())
    plan = search(compiler, search=kind)
    assert [p.mesh for p in compiler.compiled] == [best.mesh, plan.mesh]
    assert compiler.compiled[0].code == best.code
    rejected = plan.search.candidates[-1]
    assert (rejected.mesh, rejected.tactics) == (
        best.search.candidates[0].mesh,
        best.search.candidates[0].tactics,
    )
    assert plan.step_time_s == plan.search.candidates[0].step_time_s
    assert plan.step_time_s >= best.step_time_s
    (note,) = plan.search.notes
    assert "user->opcode() == kAdd" in note
    assert note in str(plan)
    assert plan.search.to_json()["notes"] == [note]
    assert plan.search.gap == 0  # the bound belonged to the rejected plan


def test_a_plan_that_compiles_is_returned_without_a_note():
    best, compiler = without_compiler(), FakeCompiler()
    plan = search(compiler)
    assert len(compiler.compiled) == 1
    assert plan.search.notes == ()
    assert plan.search.is_compiled
    assert not best.search.is_compiled
    assert plan.step_time_s == best.step_time_s
    assert plan.search.gap == best.search.gap


def test_a_plan_that_needs_too_much_memory_when_compiled_is_no_answer():
    plan = search(FakeCompiler(10**12))
    (note,) = plan.search.notes
    assert "it needs 931 GiB per device, and" in note


def test_where_nothing_compiles_the_error_has_all_reasons():
    compiler = FakeCompiler(*(failed(f"reason {n}") for n in range(9)))
    with pytest.raises(PlanError, match="accepts none of the") as error:
        search(compiler)
    assert len(compiler.compiled) == str(error.value).count("reason ") <= 5
    assert "confirm=False" in str(error.value)
    known = [(p.mesh, p.tactics) for p in compiler.compiled]
    assert all(known.count(each) == 1 for each in known)


def test_without_the_compiler_the_error_comes_first_and_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = []
    with pytest.raises(CompilerError, match=r"pip install 'meshwright\[tpu\]'"):
        mw.autoplan(
            step, ARGS, machine=MACHINE, chips=8, confirm=True, on_progress=said.append
        )
    assert not said


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs meshwright[tpu]"
)
def test_a_found_plan_compiles_with_the_real_compiler():
    plan = mw.autoplan(step, ARGS, machine=MACHINE, chips=8, budget_s=5, confirm=True)
    assert plan.search.is_compiled
    assert plan.search.notes == ()
    assert plan.confirm("tpu").compiled.fits
