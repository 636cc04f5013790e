"""The integer program against the simulator, and its optimum against enumeration."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh, load_machine
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.expert_plans import ExpertPlans, expert_strategies
from meshwright.planner.integer_program.projection import read_choices
from meshwright.planner.prices.value_roles import Role
from meshwright.planner.solve.optimum import Optimum, best_within
from meshwright.planner.solve.pricer import Limits, Pricer
from meshwright.predict.estimate import estimate
from meshwright.search.work import WorkMeter
from tests.planner.programs import DEEP, MESH, MLP, PAIR, RECURRENT, space_of

TACTICS = {
    "data": (mw.data_parallel("data"),),
    "megatron": (mw.megatron("model"),),
    "both": (mw.data_parallel("data"), mw.megatron("model")),
    "zero": (mw.data_parallel("data"), mw.zero(3, "data")),
}


def collective_s(found):
    """Seconds of collectives of a simulated step, hidden or not."""
    return sum(
        seconds
        for name, seconds in found.breakdown.items()
        if name.endswith(("hidden", "exposed"))
    )


ROWS_IN_LOOP = mw.data_parallel("data", "xs"), mw.shard({"w": 0, "v": 0}, "data")

KNOWN = {
    f"{name}-{tactics}": (program, TACTICS[tactics])
    for name, program in {"mlp": MLP, "deep": DEEP}.items()
    for tactics in TACTICS
} | {"loop": (RECURRENT, ROWS_IN_LOOP)}


@pytest.mark.parametrize(("program", "tactics"), KNOWN.values(), ids=KNOWN)
def test_collectives_of_known_tactics_cost_what_the_simulator_says(program, tactics):
    """On a switch, with a compiler that combines no collectives."""
    space = space_of(program, replace(load_machine("v100", 8), compiler="plain"))
    mesh = Mesh(MESH)
    decided = decide(space.captured, mesh, tactics, Gather.SHARED)
    exact = collective_s(estimate(decided, space.machine, donate_state=True))
    priced = space.price(mesh, exposed=dict.fromkeys(Role, 1.0))  # a step waits for all
    choices = read_choices(priced.model, decided.work.state)
    free = Pricer.of(_without_compute(priced), priced.pricer.live_counts)
    assert free.seconds(choices) == pytest.approx(exact, rel=0.05)


SIZES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1)


@given(SIZES, st.integers(1, 60))
def test_the_best_within_a_limit_fits_or_is_among_the_smallest(sizes, limit):
    plans = [Optimum((), float(s), float(b), 0.0) for s, b in sizes]
    best = best_within(plans, limit)
    fitting = [p.seconds for p in plans if p.bytes <= limit]
    if fitting:
        assert best.bytes <= limit
        assert best.seconds == min(fitting)
    else:
        least = min(p.bytes for p in plans)
        assert best.bytes <= 1.01 * least
        assert best.seconds <= min(p.seconds for p in plans if p.bytes == least)


@pytest.mark.parametrize("mesh", [{"data": 8}, MESH], ids=["one axis", "two axes"])
def test_expert_plans_read_one_after_another_equal_each_read_alone(mesh):
    space = space_of(DEEP, "v100")
    mesh = Mesh(mesh)
    priced = space.price(mesh)
    noted = []
    read = {p.name: p.choices for p in ExpertPlans(space, noted).on(mesh, priced)}
    refused = {candidate.name for candidate in noted}
    assert read
    for name, tactics in expert_strategies(mesh).items():
        work = space.start(mesh)
        try:
            for tactic in tactics:
                tactic.apply(work)
        except MeshwrightError:
            assert name in refused
        else:
            assert read[name] == read_choices(priced.model, work.state)


def _without_compute(priced):
    from dataclasses import replace

    costs = []
    for each, own, cost in zip(
        priced.model.reduced_graph.classes,
        priced.model.choices,
        priced.model.costs,
        strict=False,
    ):
        compute = priced.builder.compute
        costs.append(cost - each.runs * compute.seconds(each.node, own))
    rest = priced.model.costs[len(costs) :]
    return replace(priced.model, costs=(*costs, *rest))


def all_choices(pricer):
    return product(*(range(len(cost)) for cost in pricer.costs))


def cheapest_of_all(pricer, limit):
    """The least seconds of all choices that fit, by enumeration."""
    best = np.inf
    for choices in all_choices(pricer):
        seconds = pricer.seconds(choices)
        if seconds < best and pricer.memory_curve(choices).max() <= limit:
            best = seconds
    return best


def small(space, most=4):
    """A program with only the first `most` choices of each variable."""
    from dataclasses import replace

    priced = space.price(Mesh({"data": 4}))
    model = priced.model
    kept = [min(most, len(cost)) for cost in model.costs]
    cut = replace(
        model,
        choices=tuple(
            own.strategies[:k] for own, k in zip(model.choices, kept, strict=False)
        ),
        shared_values=tuple(
            replace(shared, shardings=shared.shardings[:k])
            for shared, k in zip(
                model.shared_values, kept[len(model.choices) :], strict=True
            )
        ),
        costs=tuple(cost[:k] for cost, k in zip(model.costs, kept, strict=True)),
        pair_costs=tuple(
            replace(
                pair,
                seconds=pair.seconds[: kept[pair.first], : kept[pair.second]],
                copy_share=pair.copy_share[: kept[pair.first], : kept[pair.second]],
            )
            for pair in model.pair_costs
        ),
        result_bytes=tuple(
            tuple(row[:k] for row in rows)
            for rows, k in zip(model.result_bytes, kept, strict=False)
        ),
    )
    return replace(Pricer.of(cut, priced.pricer.live_counts), gap=0.0)


@given(st.floats(0.2, 1.2))
def test_the_optimum_of_a_small_program_is_the_cheapest_of_all_choices(share):
    from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum

    pricer = SMALL
    whole = max(pricer.memory_curve(choices).max() for choices in all_choices(pricer))
    limit = share * whole
    best = cheapest_of_all(pricer, limit)
    found = find_optimum(pricer, limit, SolveBudget(400, WorkMeter(), 20.0))
    if found.bytes > limit:
        return
    assert found.bytes <= limit
    assert found.bound <= best * (1 + 1e-9)
    assert best <= found.seconds * (1 + 1e-9)
    limits = Limits(5.0, 400, math.inf, WorkMeter())
    fastest, _, _ = pricer.cheapest(np.zeros(pricer.live_counts.num_times), limits)
    if pricer.memory_curve(fastest).max() <= limit:
        assert found.seconds == pytest.approx(best, rel=1e-6)


SMALL = small(space_of(PAIR, devices=4))
