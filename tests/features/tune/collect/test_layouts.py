"""Collected layouts: constraints in HLO text, equal numbers, interruption, merging."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import LearnedError
from meshwright.features.tune.collect import layouts
from meshwright.features.tune.collect.layout_constraints import constrain_layouts
from meshwright.features.tune.collect.layouts import (
    CollectionPlan,
    collect_layouts,
    fingerprint,
)
from meshwright.features.tune.learned.data_files import read_npz, write_npz
from meshwright.jax_private import HloProgram

TEXT = """\
ENTRY %main (x: f32[4,8], w: f32[8,16]) -> f32[4,16] {
  %x.1 = f32[4,8]{1,0} parameter(0)
  %w.1 = f32[8,16]{1,0} parameter(1)
  ROOT %dot.2 = f32[4,16]{1,0} dot(%x.1, %w.1), lhs_contracting_dims={1}
}
"""


def product(x, w):
    return jnp.tanh(x @ w).sum(axis=0)


ARGS = (jnp.ones((4, 8)), jnp.linspace(-1, 1, 128).reshape(8, 16))


def test_constraints_stand_before_and_after_an_instruction():
    found = constrain_layouts(TEXT, {"dot.2": ((0, 1), (), (0, 1))})
    constraint = 'custom_call_target="LayoutConstraint", operand_layout_constraints='
    assert found.splitlines()[3:6] == [
        f"  %dot.2.operand1 = f32[8,16]{{0,1}} custom-call(%w.1), {constraint}"
        "{f32[8,16]{0,1}}",
        "  %dot.2.unconstrained = f32[4,16]{1,0} dot(%x.1, %dot.2.operand1),"
        " lhs_contracting_dims={1}",
        f"  ROOT %dot.2 = f32[4,16]{{0,1}} custom-call(%dot.2.unconstrained),"
        f" {constraint}{{f32[4,16]{{0,1}}}}",
    ]
    assert constrain_layouts(TEXT, {}) == TEXT
    with pytest.raises(LearnedError, match=r"no array 'dot\.3'"):
        constrain_layouts(TEXT, {"dot.3": ((0, 1),)})


def test_xla_obeys_a_constraint_and_computes_the_same():
    lowered = jax.jit(product).lower(*ARGS)
    text = lowered.compiler_ir("hlo").get_hlo_module().to_string()
    (name,) = [
        line.split()[0].lstrip("%") for line in text.splitlines() if " dot(" in line
    ]
    device = jax.devices("cpu")[0]
    plain = HloProgram(text, device)
    changed = HloProgram(constrain_layouts(text, {name: ((0, 1), (0, 1), ())}), device)
    for program in (plain, changed):
        np.testing.assert_allclose(program(*ARGS)[0], product(*ARGS), rtol=1e-5)
    assert "copy" not in plain.optimized_text()
    assert "copy" in changed.optimized_text()


def test_a_fingerprint_ignores_names_and_metadata_and_sees_layouts():
    named = 'HloModule a\n\n%f {\n  %x = f32[2]{0} tanh(%y), metadata={op_name="z"}\n}'
    other = "HloModule b\n\n%g {\n  %p = f32[2]{0} tanh(%q)\n}"
    assert fingerprint(named) == fingerprint(other)
    assert fingerprint(named) != fingerprint(other.replace("{0}", "{1}"))


PLAN = CollectionPlan(configs=6, passes=2, seed=0)


@pytest.fixture
def counted(monkeypatch):
    """Timing that returns 1000 ns, one more each time, beside 500 ns, and counts."""
    calls = []

    def count(executable, default, args):
        calls.append(executable)
        return 1000 + len(calls), 500

    monkeypatch.setattr(layouts, "paired_cpu_ns", count)
    return calls


def test_a_collection_has_the_default_and_is_read_back(tmp_path, counted):
    measured = collect_layouts("it", product, ARGS, PLAN, tmp_path)
    assert measured.default_config == 0
    assert (measured.config_feat[0] == -1).all()
    assert 2 <= measured.num_configs <= 6
    assert len(counted) == 2 * measured.num_configs
    passes = np.array(measured.provenance.pass_ns)
    np.testing.assert_array_equal(
        measured.runtime_ns, np.median(passes, axis=0).astype(int)
    )
    found = read_npz(write_npz(tmp_path, measured))
    assert found.provenance == measured.provenance
    assert found.provenance.compiler == "XLA:CPU"
    assert found.provenance.host
    assert "jaxlib" in found.provenance.version


def test_a_time_is_the_ratio_to_the_default_that_ran_in_turn_with_it(
    tmp_path, monkeypatch
):
    slowdown = iter(range(1, 1000))  # other work slows both down, more and more

    def slower(executable, default, args):
        factor = next(slowdown)
        return (1000 if executable is default else 3000) * factor, 1000 * factor

    monkeypatch.setattr(layouts, "paired_cpu_ns", slower)
    measured = collect_layouts("it", product, ARGS, PLAN, tmp_path)
    np.testing.assert_array_equal(
        measured.runtime_ns, [1000] + [3000] * (measured.num_configs - 1)
    )
    assert set(measured.provenance.spread) == {0}


def test_an_interrupted_collection_repeats_no_measurement(
    tmp_path, counted, monkeypatch
):
    whole = collect_layouts("whole", product, ARGS, PLAN, tmp_path)
    total = len(counted)
    counted.clear()
    count = layouts.paired_cpu_ns

    def interrupt(executable, default, args):
        if len(counted) == 3:
            raise KeyboardInterrupt
        return count(executable, default, args)

    monkeypatch.setattr(layouts, "paired_cpu_ns", interrupt)
    with pytest.raises(KeyboardInterrupt):
        collect_layouts("it", product, ARGS, PLAN, tmp_path)
    with (tmp_path / "it.partial.jsonl").open("a") as file:
        file.write('{"pass": 0, "con')  # a line that was cut off
    monkeypatch.setattr(layouts, "paired_cpu_ns", count)
    found = collect_layouts("it", product, ARGS, PLAN, tmp_path)
    assert len(counted) == total
    np.testing.assert_array_equal(found.config_feat, whole.config_feat)
    assert found.provenance.pass_ns == whole.provenance.pass_ns


def test_a_journal_of_another_collection_is_refused(tmp_path, counted):
    collect_layouts("it", product, ARGS, PLAN, tmp_path)
    with pytest.raises(LearnedError, match="of another collection"):
        collect_layouts("it", product, ARGS, CollectionPlan(7, 2, 0), tmp_path)


def test_configurations_that_compute_other_numbers_are_kept_as_errors(
    tmp_path, counted, monkeypatch
):
    compile_plain = layouts._Program.compile

    def compile_wrong(self, config):
        program = compile_plain(self, config)
        if not config:
            return program
        return lambda *args: [1 + x for x in program(*args)]

    monkeypatch.setattr(layouts._Program, "compile", compile_wrong)
    measured = collect_layouts("it", product, ARGS, PLAN, tmp_path)
    assert measured.num_configs == 1
    assert dict(measured.provenance.errors)["1"].startswith("other numbers")
    assert len(measured.provenance.errors) == 5


def test_a_program_without_choices_is_refused(tmp_path):
    with pytest.raises(LearnedError, match=r"no convolution, dot or reshape"):
        collect_layouts("it", jnp.tanh, (jnp.ones(3),), PLAN, tmp_path)
