"""Pipelines that the search finds are built by `mw.pipeline`, run, and equal one device."""

import itertools

import pytest

import meshwright as mw
from tests.features.pipeline.found.catalogue import MODELS
from tests.features.pipeline.found.machines import MACHINES

QUICK = (
    ("scanned decoder, adapters", "h100, 2 hosts"),
    ("listed gru, rmsprop", "v100, 4 hosts"),
    ("u-net without norms", "h100, 2 hosts"),
    ("scanned residual net, nesterov", "cpu"),
    ("generator and critic", "cpu"),
    ("pairs of a batch", "tpu v5e"),
)
"""One of each family, and of each kind that could not be built once."""

REST = [each for each in itertools.product(MODELS, MACHINES) if each not in QUICK]


def require_equal(model, machine):
    """The found pipeline of a model, checked against one device."""
    fn, args = MODELS[model]()
    found = mw.autoplan(
        fn, args, machine=MACHINES[machine](), pipeline=True, budget_s=5.0
    )
    report = mw.pipeline(fn, found).check(*args)
    assert report.ok, report
    return found


@pytest.mark.parametrize(("model", "machine"), QUICK)
def test_a_found_pipeline_runs_and_equals_one_device(model, machine):
    assert len(require_equal(model, machine).stages) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("model", "machine"), REST)
def test_every_found_pipeline_runs_and_equals_one_device(model, machine):
    require_equal(model, machine)


def test_a_batch_that_the_step_names_as_a_number_cannot_be_planned():
    fn, (params, batch) = MODELS["residual net"]()

    def step(params, batch):
        return fn(params, batch | {"x": batch["x"].reshape(16, 8, 8, 3)})

    with pytest.raises(mw.MeshwrightError, match="batch's size from its arguments"):
        mw.autoplan(step, (params, batch), machine=MACHINES["cpu"](), pipeline=True)
