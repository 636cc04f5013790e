"""Reports of a check, with and without ill-conditioned outputs."""

import jax.numpy as jnp
import numpy as np

import meshwright as mw
from meshwright.app.check.check import CheckReport, OutputError

PLAIN = OutputError("loss", "float32", (), 3e-6, 2e-4)
ILL_CONDITIONED = OutputError("bias", "float32", (8,), 3.1, 8.0, sensitivity=2.0)


def test_without_ill_conditioned_outputs_the_summary_has_the_largest_error():
    assert CheckReport((PLAIN,)).summary == "equal: 1 outputs, largest error 3.00e-06"


def test_ill_conditioned_outputs_have_a_count_and_an_error_of_their_own():
    first, second = CheckReport((PLAIN, ILL_CONDITIONED, PLAIN)).summary.splitlines()
    assert first == "equal: 3 outputs, largest error 3.00e-06 among 2 of them"
    assert second.startswith("1 are ill-conditioned, largest error 3.10e+00; their")


def test_a_report_of_ill_conditioned_outputs_alone_names_no_other_error():
    first, second = CheckReport((ILL_CONDITIONED,)).summary.splitlines()
    assert first == "equal: 1 outputs"
    assert second.startswith("1 are ill-conditioned")


def test_an_output_beyond_its_own_tolerance_is_not_equal():
    wrong = OutputError("loss", "float32", (), 1.0, 2e-4, sensitivity=1e-7)
    report = CheckReport((wrong, ILL_CONDITIONED))
    assert not wrong.is_ill_conditioned
    assert report.summary.startswith(
        "NOT EQUAL: 2 outputs, largest error 1.00e+00 among"
    )


def test_a_quotient_of_rounding_errors_is_ill_conditioned():
    """Adam's first step: what is zero but for rounding, divided by its own size."""

    def step(x):
        zero = x.sum(axis=0) - jnp.ones(len(x)) @ x
        return {"sign": zero / (jnp.abs(zero) + 1e-12), "sum": jnp.abs(x).sum()}

    x = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    report = mw.partition(step, {"data": 8}, [mw.shard({"x": 0}, axis="data")]).check(x)
    assert report.ok
    by_path = {output.path: output for output in report.outputs}
    assert not by_path["out.sum"].is_ill_conditioned
    assert by_path["out.sign"].is_ill_conditioned
