"""Saved plans that were damaged: refused with the place, and never a wrong number."""

import copy
import functools
import json
import operator
import re

import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import MeshwrightError, TacticError

X = np.ones((8, 6), np.float32)
STATE = {"params": {"w": np.ones((6, 4), np.float32)}, "step": np.int32(0)}


def step(state, batch):
    return batch @ state["params"]["w"]


def refuses(error, words):
    return pytest.raises(error, match=re.escape(words))


PLAN = mw.partition(step, {"data": 4}, [mw.shard({"batch": 0}, "data")]).plan(STATE, X)
SAVED = json.loads(PLAN.on("tpu-v5e").to_json())


def places(value, *path):
    """The path of every value in JSON, of the first item only in lists."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for name, inner in entries:
        if isinstance(inner, dict | list):
            yield from places(inner, *path, name)
        else:
            yield (*path, name)


def changed(path, *value):
    """The saved plan with another value at a path, or without it."""
    text = copy.deepcopy(SAVED)
    holder = functools.reduce(operator.getitem, path[:-1], text)
    if value:
        holder[path[-1]] = value[0]
    else:
        del holder[path[-1]]
    return json.dumps(text)


@pytest.mark.parametrize("path", [*places(SAVED)], ids=lambda p: ".".join(map(str, p)))
def test_a_damaged_plan_is_refused_or_gives_the_same_numbers(path):
    wrong = [
        (),
        *((v,) for v in (None, [], "x", [[]], -1, 99, ["q"], [[9, "q", 9]], {})),
    ]
    for value in wrong:
        try:
            loaded = mw.Plan.from_json(changed(path, *value))
            assert str(loaded)
            result = mw.partition(step, loaded).eval_shape(STATE, X)
            mw.partition(step, loaded).decide(STATE, X)
        except MeshwrightError as error:
            assert str(error)  # noqa: PT017  either is right
        else:
            assert result.shape == (8, 4)


DAMAGES = {
    "this is no plan: inputs[0].shape is 'abc'; wanted a list": (
        ("inputs", 0, "shape"), "abc",
    ),
    "this is no plan: counts is None; wanted an object": (("counts",), None),
    "this is no plan: recompute[0] is 'dot'; wanted a list": (("recompute",), ["dot"]),
    "this is no plan: it lacks inputs": (("inputs",),),
    "cut_of of the decisions has a number not below 3": (
        ("decisions", 0, "cut_of"), "0 0 1 9",
    ),
    "format is '3'; wanted 7: make it again with this version": (("format",), "3"),
}  # fmt: skip


@pytest.mark.parametrize("words", DAMAGES)
def test_a_damaged_plan_names_the_wrong_place(words):
    with refuses(MeshwrightError, words):
        mw.Plan.from_json(changed(*DAMAGES[words]))


def test_decisions_that_the_program_does_not_have_are_refused():
    cut = changed(("decisions", 0, "cuts"), [[], [["data", 7]], [["data", 1]]])
    with refuses(TacticError, "the decisions cut factor 7 of a input along data"):
        mw.partition(step, mw.Plan.from_json(cut)).plan(STATE, X)
    kept = changed(("decisions", 0, "kept"), [[99, [["data"]]]])
    with refuses(TacticError, "shard 1 dims of value 99 along data, which"):
        mw.partition(step, mw.Plan.from_json(kept)).plan(STATE, X)
