"""A program, and a judge of its layouts whose best ones are known."""

import math

import jax.numpy as jnp

from meshwright.features.tune.layouts.gain_model import GainModel
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.layouts.kernel_costs import Example
from meshwright.features.tune.layouts.kernels import HloKernel
from meshwright.features.tune.layouts.layout_search import LayoutSearch, SearchOptions
from meshwright.features.tune.layouts.verdict import Verdict, failed
from meshwright.features.tune.tune_layouts import on_one_device


def decided():
    def fn(p, x):
        y = jnp.tanh(x @ p["a"])
        z = jnp.einsum("btd,dhk->bthk", y, p["b"])
        return jnp.sum(jnp.einsum("bthk,bshk->bhts", z, z))

    p = {"a": jnp.ones((16, 16)), "b": jnp.ones((16, 2, 8))}
    return on_one_device(fn, (p, jnp.ones((2, 8, 16))))


class FakeJudge:
    """A compiler with one kernel per value, cheaper with one minor dim by `gains`.

    hidden: values whose other order moves bytes to a copy without an estimate.
    """

    unit = "cycles"

    def __init__(self, gains, auto=1.0, screens=True, hidden=(), fails=()):
        self.gains, self.auto, self.screens = gains, auto, screens
        self.hidden, self.fails = hidden, fails
        self.judged, self.num_screened, self.stop_at = 0, 0, None

    def kernels(self, question):
        """Key and cost of each value's kernel, and how many copies were moved."""
        chosen = question.layouts
        entry = "auto" if question.is_auto and self.auto != 1.0 else ""
        found = []
        for i, (value, minor, factor) in enumerate(self.gains):
            order = chosen.get(value)
            is_best = order is not None and order[-1] == minor
            found.append(
                (
                    f"k{i}{order}{entry}",
                    1.0 if order is None else factor if is_best else 1.3,
                )
            )
        return found, sum(v in self.hidden for v in chosen)

    def screen(self, question):
        self.num_screened += 1
        found, moved = self.kernels(question)
        kernels = [
            HloKernel(key, key, 1, key[:2], {}, (math.log(100 * cost),) * 2, False, 0.0)
            for key, cost in found
        ]
        copy = HloKernel(
            "copy", "copy", 1, "copy", {}, (5.0, 5.0), True, 1000.0 * moved
        )
        return [*kernels, copy]

    def judge(self, question):
        self.judged += 1
        if self.stop_at == self.judged:
            raise KeyboardInterrupt
        if any(value in self.fails for value in question.layouts):
            return failed("it does not compile")
        found, moved = self.kernels(question)
        scale = 100 * (self.auto if question.is_auto else 1.0)
        examples = [
            Example(key, key[:2], (math.log(100 * cost),) * 2, scale * cost)
            for key, cost in found
        ]
        return Verdict(
            scale * sum(cost for _, cost in found),
            unestimated_bytes=1000 * moved,
            in_layouts=((0, 1), (0, 1, 2), (0, 1, 2)),
            out_layouts=((),),
            examples=tuple(examples),
        )

    confirm = judge


def make_gains(sites, factors):
    """For the first sites that are no inputs, their best minor dim and a factor."""
    inner = [s for s in sites.values() if not s.role.startswith("input")]
    return [
        (site.values[0], 0, factor)
        for site, factor in zip(inner, factors, strict=False)
    ]


def make_search(judge, sites, program, *, budget=30, journal=None, **options):
    return LayoutSearch(
        program,
        sites,
        judge,
        GainModel(sites, {}),
        SearchOptions(budget, 0, **{"losses": 20, "screens": 60, **options}),
        journal or Journal(),
        "fake",
    )
