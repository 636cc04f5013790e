"""Requests for checkpoints: the structure of a state, as it goes to workers."""

import json

import numpy as np
import optax

from meshwright.features.checkpoint.tasks import structure_of


def test_empty_containers_of_a_state_are_objects_and_lists_in_its_structure():
    x = np.ones(3)
    state = {
        "adam": optax.adam(1e-3).init({"w": x}),
        "masked": optax.masked(optax.identity(), {"w": False}).init({"w": x}),
        "none": None,
        "pairs": ((), [], {}),
    }
    structure = structure_of(state)
    assert structure == {
        "adam": [{"count": 0, "mu": {"w": 1}, "nu": {"w": 2}}, {}],
        "masked": {"inner_state": {}},
        "none": None,
        "pairs": [[], [], {}],
    }
    assert json.loads(json.dumps(structure)) == structure
