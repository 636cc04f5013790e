"""Learned register allocation: rules, corrections, files, training and builds."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.allocation.cost_change import (
    FunctionChange,
    FunctionCosts,
    cost_change,
    cost_changes,
    is_better,
)
from meshwright.features.policies.compiler.allocation.evolution import (
    EvolutionState,
    advance,
    direction,
)
from meshwright.features.policies.compiler.allocation.measured import measured_unit
from meshwright.features.policies.compiler.allocation.policies import (
    AllocationPolicy,
    first_policy,
    save_policy,
    with_weights,
)
from meshwright.features.policies.compiler.allocation.train import (
    AllocationPlan,
    train_allocation,
)
from meshwright.features.policies.compiler.channel import Observation
from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.corpus import Unit, one_of_each_file
from meshwright.features.policies.compiler.driving.object_file import function_bytes
from meshwright.features.policies.compiler.learned.policy_file import read_policy
from meshwright.features.policies.compiler.projects.build import build_with_policy
from meshwright.features.policies.compiler.registers.costs import (
    FunctionCost,
    improved,
)
from meshwright.features.policies.compiler.registers.spills import (
    recorded_cycles,
)
from tests.features.policies.compiler.programs import pressed_program

SLOTS = 33
SCALED = [
    "use_def_density",
    "nr_defs_and_uses",
    "weighed_reads_by_max",
    "weighed_writes_by_max",
    "weighed_read_writes_by_max",
    "weighed_indvars_by_max",
    "hint_weights_by_max",
    "start_bb_freq_by_max",
    "end_bb_freq_by_max",
    "hottest_bb_freq_by_max",
    "liverange_size",
    "nr_broken_hints",
    "nr_rematerializable",
    "is_hint",
    "is_local",
    "nr_urgent",
    "max_stage",
    "min_stage",
]


def candidates(
    weights: Sequence[float], own: float | None, **features: Sequence[float]
) -> Observation:
    """Candidates in slots 3, 4, ...; `None` if the range that asks must get one."""
    arrays = {name: np.zeros(SLOTS, np.float32) for name in SCALED}
    arrays["mask"] = np.zeros(SLOTS, np.int64)
    end = 3 + len(weights)
    arrays["mask"][3:end] = 1
    arrays["use_def_density"][3:end] = weights
    if own is not None:
        arrays["mask"][32] = 1
        arrays["use_def_density"][32] = own
    for name, values in features.items():
        arrays[name][3:end] = values
    return Observation({**arrays, "progress": np.zeros(1, np.float32)})


def drawn_policy(kind: str, size: float) -> AllocationPolicy:
    """A policy with random corrections."""
    start = first_policy(kind)
    shape = start.correction.weights.shape
    return with_weights(start, size * np.random.default_rng(1).normal(size=shape))


def test_without_corrections_the_lightest_range_is_evicted_if_it_is_lighter() -> None:
    policy = first_policy("evict")
    assert policy(candidates([0.5, 0.2, 0.4], own=0.3)) == 4
    assert policy(candidates([0.5, 0.4, 0.4], own=0.3)) == 32
    assert policy(candidates([0.5, 0.2, 0.4], own=None)) == 4
    broken = candidates([0.5, 0.2, 0.4], own=1.0, nr_broken_hints=[0, 1, 0])
    assert policy(broken) == 5
    hinted = candidates([0.5, 0.2, 0.4], own=1.0, is_hint=[1, 0, 0])
    assert policy(hinted) == 3
    local = candidates([0.5, 0.2, 0.4], own=1.0, is_local=[0, 1, 0])
    assert policy(local) == 5
    endless = candidates([np.nan, 0.0], own=0.0, liverange_size=[1, 1])
    assert policy(endless) == 32


@pytest.mark.parametrize("size", [0.5, 5.0])
def test_a_policy_takes_only_what_may_be_taken(size: float) -> None:
    policy, draw = drawn_policy("evict", size), np.random.default_rng(0)
    for number in range(200):
        call = candidates(draw.random(6), own=None if number % 2 else draw.random())
        call.features["mask"][draw.integers(3, 8)] = 0
        assert call.features["mask"][int(policy(call))] == 1


def test_without_corrections_the_longest_range_comes_first() -> None:
    policy = first_policy("priority")

    def priority(size: float, stage: int) -> float:
        features = {"li_size": [size], "stage": [stage], "weight": [np.inf]}
        return policy(Observation({name: np.array(v) for name, v in features.items()}))

    order = [priority(9000, 2), priority(900, 1), priority(128, 4), priority(8, 0)]
    assert order == sorted(order, reverse=True)
    assert np.isfinite(order).all()
    other = drawn_policy("priority", 1.0)
    assert np.isfinite(
        other(
            Observation(
                {
                    "li_size": np.array([8.0]),
                    "stage": np.array([1.0]),
                    "weight": np.array([np.inf]),
                }
            )
        )
    )


def test_cycles_are_read_from_remarks(tmp_path: Path) -> None:
    def remark(name: str, function: str, costs: str) -> str:
        return (
            f"--- !Missed\nPass:            regalloc\nName:            {name}\n"
            f"Function:        {function}\nArgs:\n{costs}...\n"
        )

    path = tmp_path / "r.yaml"
    costs = (
        "  - NumSpills:       '2'\n"
        "  - TotalSpillsCost: '1.500000e+01'\n"
        "  - TotalReloadsCost: '2.0'\n"
        "  - TotalFoldedReloadsCost: '0.25'\n"
        "  - TotalCopiesCost: '10.0'\n"
    )
    loop = remark("LoopSpillReloadCopies", "f", "  - TotalSpillsCost: '9.0'\n")
    copies = remark("SpillReloadCopies", "'g.1'", "  - TotalCopiesCost: '5.0'\n")
    path.write_text(loop + remark("SpillReloadCopies", "f", costs) + copies)
    assert recorded_cycles(path) == {"f": 15 + 4 * 2.25 + 0.2 * 10, "g.1": 1.0}
    assert recorded_cycles(tmp_path / "none") == {}


def test_a_policy_without_corrections_is_near_clangs_rule(
    cc: ClangCompiler, tmp_path: Path
) -> None:
    """They differ where a live range is unspillable, which hides the others' weights."""
    source = tmp_path / "unit.c"
    source.write_text(pressed_program(12, seed=0))
    plain = cc.compile(source, ["-O2"], measure_spills=True)
    assert plain.object == cc.compile(source, ["-O2"]).object
    assert set(plain.spill_cycles) == {f"f{k}" for k in range(12)}

    def equal(policy: AllocationPolicy) -> int:
        made = cc.compile(source, ["-O2"], evict=policy, measure_spills=True)
        assert made.fault == ""
        assert len(made.decisions["evict"]) > 100
        pairs = zip(plain.spill_cycles.items(), made.spill_cycles.items(), strict=True)
        return sum(one == other for one, other in pairs)

    assert equal(first_policy("evict")) >= 4
    assert equal(drawn_policy("evict", 1.0)) <= 2


def test_ir_gives_the_costs_of_its_source(cc: ClangCompiler, tmp_path: Path) -> None:
    source = tmp_path / "unit.c"
    source.write_text(pressed_program(2, seed=1))
    unit = Unit("unit.c", "p", "c", ("-O2", "-fPIC"), source)
    policy = drawn_policy("evict", 0.3)
    start = first_policy("evict")
    measured = measured_unit(cc, unit, "evict", start, tmp_path / "code")
    made = cc.compile(source, unit.compile_flags, evict=policy, measure_spills=True)
    costs = measured.costs(cc, "evict", policy)
    assert {name: cost.cycles for name, cost in costs.items()} == made.spill_cycles
    assert costs == cc.register_costs(source, unit.compile_flags, evict=policy)
    assert measured == measured_unit(cc, unit, "evict", start, tmp_path / "code")


@pytest.mark.parametrize("kind", ["evict", "priority"])
def test_a_policy_file_reads_as_written_and_is_small(kind: str, tmp_path: Path) -> None:
    policy = drawn_policy(kind, 1.0)
    save_policy(policy, tmp_path / "policy.npz")
    again = read_policy(tmp_path)
    assert again.kind == kind
    assert not isinstance(again, type(None))
    np.testing.assert_array_equal(
        again.correction.weights,  # pyright: ignore[reportAttributeAccessIssue]
        policy.correction.weights,
    )
    assert (tmp_path / "policy.npz").stat().st_size < 1 << 20


def test_a_policy_of_eviction_is_shipped(cc: ClangCompiler, tmp_path: Path) -> None:
    policy = read_policy("shipped")
    assert policy.kind == "evict"
    source = tmp_path / "unit.c"
    source.write_text(pressed_program(12, seed=3))
    plain = cc.compile(source, ["-O2"], measure_spills=True)
    made = cc.compile(source, ["-O2"], evict=policy, measure_spills=True)
    assert made.fault == ""
    assert made.spill_cycles != plain.spill_cycles


def test_a_policy_is_read_without_jax(tmp_path: Path) -> None:
    save_policy(drawn_policy("evict", 1.0), tmp_path / "policy.npz")
    code = (
        "import sys; from pathlib import Path;"
        "from meshwright.features.policies.compiler.learned.policy_file"
        " import read_policy;"
        f"read_policy(Path({str(tmp_path)!r}));"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_faulty_policies_say_what_to_do(cc: ClangCompiler, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="has no policy; make one by"):
        read_policy(tmp_path)
    (tmp_path / "policy.npz").write_bytes(b"PK no zip")
    with pytest.raises(PolicyError, match="is no policy"):
        read_policy(tmp_path)
    np.savez(tmp_path / "other.npz", format="other", weights=np.zeros(3))
    with pytest.raises(PolicyError, match="the format 'other', which is not known"):
        read_policy(tmp_path / "other.npz")
    wrong = np.zeros(3, np.float32)
    np.savez(
        tmp_path / "small.npz",
        format="meshwright evict policy, version 1",
        weights=wrong,
    )
    with pytest.raises(PolicyError, match=r"weights of shape \(3,\)"):
        read_policy(tmp_path / "small.npz")
    with pytest.raises(PolicyError, match="has no feature 'end_bb_freq"):
        first_policy("evict")(Observation({}))
    with pytest.raises(PolicyError, match="has no feature 'li_size'"):
        first_policy("priority")(Observation({}))
    source = tmp_path / "unit.c"
    source.write_text("int x;")
    with pytest.raises(PolicyError, match="of evict cannot decide about inline; pass"):
        cc.compile(source, inline=first_policy("evict"))


def test_steps_go_down_a_mean_over_examples() -> None:
    """Each example has its own least point; the mean of their costs has one between."""
    draw = np.random.default_rng(0)
    least = np.array([1.0, -2.0]) + draw.normal(size=(100, 2))

    def costs(points: np.ndarray) -> np.ndarray:
        return ((points - least) ** 2).sum(1)

    state = EvolutionState.start(np.zeros(2, np.float32))
    for _ in range(80):
        directions = np.stack([direction(state, 0, example) for example in range(100)])
        up, down = (costs(state.weights + s * directions) for s in (0.1, -0.1))
        state = advance(state, directions, up - down, spread=0.1, rate=0.05)
    np.testing.assert_allclose(state.mean, least.mean(0), atol=0.1)


def test_a_change_has_its_sign_and_interval() -> None:
    draw = np.random.default_rng(0)
    default = draw.exponential(20, 400)
    ratios = draw.normal(0.95, 0.1, 400)
    functions = [
        FunctionChange("p", float(d), float(d * r))
        for d, r in zip(default, ratios, strict=True)
    ]
    change = cost_change(functions)
    assert change.low < change.mean < change.high < 0
    assert change.total_low < change.total < change.total_high < 0
    assert change.better + change.worse == change.functions == 400
    same = cost_change([FunctionChange("p", 3.0, 3.0)] * 5)
    assert (same.mean, same.low, same.high, same.total) == (0, 0, 0, 0)
    assert cost_change([]).functions == 0


def test_a_build_keeps_no_function_that_costs_more() -> None:
    default = FunctionCost(10.0, 80.0, 10.0, 10.0)
    policies = [(5.0, 70.0), (5.0, 90.0), (20.0, 70.0), (20.0, 90.0)]
    found = [
        FunctionCosts("p", default, FunctionCost(*each, 10.0, 10.0))
        for each in policies
    ]
    changes = cost_changes(found)
    assert changes.kept_cycles.better == changes.kept_operations.better == 1
    assert changes.kept_cycles.worse == changes.kept_operations.worse == 0
    assert (changes.cycles.worse, changes.operations.worse) == (2, 2)
    assert changes.kept_operations.total == pytest.approx(-0.025)


@pytest.fixture
def units(tmp_path: Path) -> list[Unit]:
    """Units of three projects."""
    found: list[Unit] = []
    for number in range(6):
        source = tmp_path / f"unit{number}.c"
        source.write_text(pressed_program(4, seed=number))
        project = f"project{number // 2}"
        found.append(Unit(source.name, project, "c", ("-O2",), source))
    return found


def test_a_file_that_is_compiled_twice_counts_once() -> None:
    source = Path("f.c")
    units = [
        Unit(f"{name}@{digest}", project, "c", (f"-D{digest}",), source)
        for project in ("p", "q")
        for name in ("f.c", "g.c")
        for digest in ("1", "2")
    ]
    assert one_of_each_file(units) == units[::2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["evict", "priority"])
def test_a_training_goes_on_as_if_it_had_not_ended(
    cc: ClangCompiler, units: list[Unit], tmp_path: Path, kind: str
) -> None:
    """Ctrl-C between two steps changes neither the policy nor the curve."""
    plan = AllocationPlan(kind, frozenset({"project2"}), seconds=300, steps=4, batch=3)
    whole = train_allocation(units, cc, tmp_path / "whole", plan)

    def interrupt(text: str) -> None:
        if text.startswith("step 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_allocation(units, cc, tmp_path / "parts", plan, interrupt)
    parts = train_allocation(units, cc, tmp_path / "parts", plan)
    assert parts.curve == whole.curve
    assert parts.held_out == whole.held_out
    assert len(whole.curve) == 4
    assert whole.is_complete
    assert set(whole.held_out) == {"project2", "all"}
    files = (tmp_path / name / "policy.npz" for name in ("whole", "parts"))
    first, second = (np.load(file)["weights"] for file in files)
    np.testing.assert_array_equal(first, second)
    other = AllocationPlan(kind, plan.held_out, 300, steps=4, batch=3, seed=1)
    with pytest.raises(PolicyError, match="of another kind, seed, batch, start or"):
        train_allocation(units, cc, tmp_path / "whole", other)
    other = replace(plan, start=drawn_policy(kind, 0.1))
    with pytest.raises(PolicyError, match="of another kind, seed, batch, start or"):
        train_allocation(units, cc, tmp_path / "whole", other)
    other = AllocationPlan(kind, frozenset({"other"}), 300)
    with pytest.raises(PolicyError, match="has no project 'other'"):
        train_allocation(units, cc, tmp_path / "whole", other)


def test_a_function_is_improved_if_one_cost_is_less_and_none_is_more() -> None:
    plain = {name: FunctionCost(8.0, 100.0, 20.0, 10.0) for name in "abcdef"}
    other = {
        "a": FunctionCost(7.0, 100.0, 20.0, 10.0),
        "b": FunctionCost(8.0, 99.0, 20.0, 10.0),
        "c": FunctionCost(7.0, 98.0, 18.0, 11.0),
        "d": FunctionCost(9.0, 99.0, 20.0, 10.0),
        "e": FunctionCost(8.0, 100.0 - 1e-12, 20.0, 10.0),
        "g": FunctionCost(0.0, 0.0, 0.0, 0.0),
    }
    assert improved(plain, other) == {"a", "b"}


def test_a_build_takes_the_functions_that_a_policy_improves(
    cc: ClangCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        (tmp_path / f"f{seed}.c").write_text(pressed_program(4, seed))
    (tmp_path / "Makefile").write_text(
        "all: f0.o f1.o\n%.o: %.c\n\t$(CC) -O2 -ffunction-sections -c -o $@ $<\n"
    )
    policy, flags = drawn_policy("evict", 0.2), ["-O2", "-ffunction-sections"]
    save_policy(policy, tmp_path / "policy.npz")
    monkeypatch.chdir(tmp_path)
    status, sizes = build_with_policy(cc.clang, ["make"], tmp_path / "policy.npz")
    assert status == 0
    assert not [each.fault for each in sizes if each.fault]
    taken = 0
    for each in sizes:
        source = tmp_path / each.object.replace(".o", ".c")
        plain = cc.register_costs(source, flags)
        made = cc.register_costs(source, flags, evict=policy)
        chosen = improved(plain, made)
        taken += len(chosen)
        assert each.improved == len(chosen)
        kept = [made[name] if name in chosen else plain[name] for name in plain]
        assert each.cycles_after == pytest.approx(sum(cost.cycles for cost in kept))
        assert each.operations_before >= each.operations_after
        objects = [cc.compile(source, flags, evict=fn).object for fn in (None, policy)]
        files = [tmp_path / f"{name}.object" for name in ("plain", "policy")]
        for file, content in zip(files, objects, strict=True):
            file.write_bytes(content)
        ours, theirs = map(function_bytes, files)
        wanted = {name: (theirs if name in chosen else ours)[name] for name in plain}
        found = function_bytes(tmp_path / each.object)
        assert {name: found[name] for name in plain} == wanted
        for file in files:
            file.unlink()
    assert 0 < taken < 8
    assert {path.suffix for path in tmp_path.iterdir()} == {".c", ".o", ".npz", ""}


def test_a_build_leaves_files_with_debug_information(
    cc: ClangCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "f.c"
    source.write_text(pressed_program(8, 0))
    policy = drawn_policy("evict", 0.2)
    save_policy(policy, tmp_path / "policy.npz")
    monkeypatch.chdir(tmp_path)
    command = ["sh", "-c", "cc -g -O2 -c f.c"]
    status, (sizes,) = build_with_policy(cc.clang, command, tmp_path / "policy.npz")
    assert status == 0
    assert "build without it (--flags=-g0)" in sizes.fault
    assert (tmp_path / "f.o").read_bytes() == cc.compile("f.c", ["-g", "-O2"]).object


def test_no_policy_is_better_by_less_than_two_functions() -> None:
    before, after = (
        FunctionCost(4.0, 10.0, 10.0, 10.0),
        FunctionCost(1.0, 9.0, 9.0, 9.0),
    )
    one = FunctionCosts("zlib", before, after)
    assert not is_better([])
    assert not is_better([one])
    assert is_better([one, one])
