"""Alpa's models through our integer program, at Alpa's costs of collectives.

Computing costs nothing, but every product has to be split along all axes, as in Alpa.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import meshwright as mw
from benchmarks.papers.alpa_costs import FORMS
from meshwright.machine import Mesh, load_machine
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.propagate import Graph, user_axes
from meshwright.planner.integer_program.builder import IntegerProgramBuilder
from meshwright.planner.integer_program.live_counts import live_counts
from meshwright.planner.integer_program.projection import chosen_strategies
from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.uniform_partition import price_ops
from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum
from meshwright.planner.solve.pricer import Pricer
from meshwright.planner.strategies.enumeration import Strategies
from meshwright.planner.strategies.symmetry import Runs, group_nodes
from meshwright.predict.roofline.matrix_unit import uses_matrix_unit
from meshwright.search.work import WorkMeter
from tests.alpa.cases import CASES, built

MACHINE = load_machine("h100", 4)
"""A machine that does not pad arrays; nothing else about it matters."""


@dataclass(frozen=True)
class Products:
    """Stands in for `ComputeTimes`: each axis splits a factor of a product of its own.

    So no product is computed twice, and no dim is split by two axes. All else is free.
    """

    compute: ComputeTimes

    def __getattr__(self, name):
        return getattr(self.compute, name)

    def seconds(self, node, choices):
        return np.array([self.seconds_of(node, strategy) for strategy in choices])

    def seconds_of(self, node, strategy):
        if node.op is None or not uses_matrix_unit(node.op):
            return 0.0
        taken = [user_axes(own) for _, own in strategy.axes]
        is_mixed = any(len(own) > 1 for own in taken)
        is_whole = sum(map(len, taken)) < len(user_axes(self.compute.mesh.axes))
        return math.inf if is_mixed or is_whole else 0.0


def lines_of(costs, axes, mesh):
    """Alpa's closed forms as lines; a collective without one is forbidden.

    So are both axes at once, and parts of one: `allow_mixed_mesh_shape` is off.
    """

    def line(kind, own, role):
        if kind == "all_slice":
            return 0.0, 0.0
        place = axes.index(user_axes(own)[0])
        size = costs.shape[place]
        if kind not in FORMS or mesh.size(own) != size:
            return math.inf, 0.0
        share, tie = FORMS[kind]
        # Alpa counts the bytes that all devices exchange, we those of one device.
        times = size if kind == "all_to_all" else 1
        return costs.alphas[place] + tie, times * costs.betas[place] * share(size)

    return line


@cache
def optimum_of(name, costs, *given):
    """The cheapest plan of a case on top of given tactics: the optimum, and the plan."""
    case = CASES[name]
    fn, args = built(case.build)
    mesh = Mesh(case.mesh)
    step = mw.partition(fn, mesh)
    captured = step.capture(*args)
    work = start_workspace(captured, mesh, Graph(captured.program, captured.ties))
    for tactic in given:
        tactic.apply(work)
    state = work.state
    reduced = group_nodes(Runs(work.graph), range(len(work.graph.nodes)))
    prices = price_ops(captured.program, MACHINE, mesh.num_devices)
    compute = Products(ComputeTimes(MACHINE.chip, state.mesh, prices))
    strategies = Strategies(state, tuple(state.size))
    resharding = ReshardingPrices(state.mesh, lines_of(costs, mesh.axes, state.mesh))
    program = IntegerProgramBuilder(state, reduced, strategies, compute).build(
        resharding
    )
    counts = live_counts(work.graph, reduced, prices, tuple(work.graph.ties))
    pricer = replace(Pricer.of(program, counts), gap=0.0)
    found = find_optimum(pricer, None, SolveBudget(400, WorkMeter(), 20.0))
    chosen = chosen_strategies(program, found.choices, state, "alpa")
    plan = mw.partition(fn, mesh, [*given, chosen]).plan(*args)
    return found, plan


def cost_of(plan, costs):
    """The cost of the collectives of a lowered plan on a logical mesh."""
    axes, total = plan.mesh.axes, 0.0
    for found in plan.collectives:
        place = axes.index(*found.axes)
        times = costs.shape[place] if found.kind == "all_to_all" else 1
        total += costs.cost(found.kind, times * found.bytes, place)
    return total
