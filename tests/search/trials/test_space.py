"""Spaces: candidates and their codes, conditions, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import SearchError
from meshwright.search.trials import Choice, Range, Repeat, Space
from meshwright.search.trials.space.coding import Coding, Draws
from tests.search.trials.problems import SPACE, all_candidates

plain_values = st.one_of(st.integers(-3, 3), st.booleans(), st.text(max_size=2))


def _parts(inner):
    options = st.lists(st.one_of(inner, plain_values), min_size=1, max_size=3)
    return st.one_of(
        options.map(lambda found: Choice(*_distinct(found))),
        st.builds(lambda part, low, more: Repeat(part, low, low + more + 1), inner,
                  st.integers(0, 1), st.integers(0, 1)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(Space),
    )  # fmt: skip


def _distinct(options):
    found = {(type(o).__name__, json.dumps(getattr(o, "plain", lambda o=o: o)())): o for o in options}  # noqa: E501  # fmt: skip
    return found.values()


ranges = st.one_of(
    st.builds(lambda low, more, step: Range(low, low + more, step), st.integers(-5, 5),
              st.integers(0, 9), st.integers(1, 3)),
    st.just(Range(0.5, 2.0)),
    st.just(Range(1e-4, 1.0, log=True)),
    st.just(Range(0.0, 1.0, step=0.1)),
)  # fmt: skip
spaces = st.dictionaries(
    st.sampled_from("xyz"), st.recursive(ranges, _parts, max_leaves=6), min_size=1
).map(Space)


@settings(max_examples=80)
@given(spaces, st.integers(0, 9))
def test_codes_and_candidates_are_one_another(space, seed):
    coding, draws = Coding.of(space), Draws(space, np.random.default_rng(seed), 1)
    for code in draws.initial(4):
        candidate = space.decode(code.tolist())
        assert json.loads(json.dumps(candidate)) == candidate
        again = space.encode(candidate)
        assert space.decode(again) == candidate
        assert np.allclose(coding.from_units(coding.units(code)), code)
        assert ((code >= coding.low) & (code <= coding.high)).all()
        assert space.decode(coding.code_of(candidate).tolist()) == candidate


def test_every_allowed_candidate_is_drawn_and_no_other():
    draws = Draws(SPACE, np.random.default_rng(0), 2)
    codes = draws.several(len(all_candidates()) + 60, draws.random)
    drawn = {json.dumps(SPACE.decode(code.tolist())) for code in codes}
    assert drawn <= {json.dumps(candidate) for candidate in all_candidates()}
    assert len(drawn) == len(all_candidates())
    assert SPACE.num_values >= len(all_candidates())
    assert list(SPACE.values()) == all_candidates()
    assert draws.is_exhausted


def test_a_nested_condition_gets_the_nested_dict():
    inner = Space({"a": Choice(1, 2, 3)}, where=lambda c: c["a"] != 2)
    space = Space({"blocks": Repeat(inner, 2, 2), "kind": Choice("none", inner)})
    assert space.broken({"blocks": [{"a": 1}, {"a": 2}], "kind": "none"})
    assert space.broken({"blocks": [{"a": 1}, {"a": 3}], "kind": {"a": 2}})
    assert not space.broken({"blocks": [{"a": 1}, {"a": 3}], "kind": {"a": 1}})


def never(candidate):
    return False


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice(), "no options"),
        (lambda: Choice(1, 2, 1), "twice"),
        (lambda: Choice((1, 2)), "wanted a number, text"),
        (lambda: Range(3, 1), "low <= high"),
        (lambda: Range(0.0, 1.0, log=True), "above 0"),
        (lambda: Repeat(Choice(1), 2, 1), "0 or more"),
        (lambda: Space({}), "wanted a dict of parts"),
        (lambda: Space({"a": object()}), "a of a Space"),
        (lambda: SPACE.encode({"kernel": 4, "kind": "plain", "widths": [8]}), "is 4"),
        (lambda: SPACE.encode({"kernal": 3}), "did you mean 'kernel'"),
        (lambda: Draws(Space({"a": Range(0, 9)}, (never, lambda c: True)),
                       np.random.default_rng(0), 1).random(), "never (line"),
    ],
)  # fmt: skip
def test_what_is_no_space_or_candidate_is_refused_with_the_reason(make, words):
    with pytest.raises(SearchError) as refusal:
        make()
    assert words in str(refusal.value)
