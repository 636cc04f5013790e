"""Whole programs: ops of all families, then a forward pass, a gradient or a step."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from tests.fuzz import (
    accumulation,
    contraction,
    elementwise,
    indexing,
    reduction,
    regions,
    shapes,
)
from tests.fuzz.pool import EXTENTS, Draft, Input, NoFitError, Scope, Var, indent

FLAT = (
    *elementwise.FAMILIES, *shapes.FAMILIES, *contraction.FAMILIES,
    *reduction.FAMILIES, *indexing.FAMILIES,
)  # fmt: skip
MAX_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Generated:
    """A function: what it takes, its lines, and what it gives.

    variant: "forward" (parameters are the leaves' names), "grad" (`p`, a dict of float
    leaves, then the others) or "sgd", "momentum", "adam" (`state`, which holds `p`, then
    the others). values: everything that top-level lines make.
    """

    variant: str
    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    values: tuple[Var, ...]
    outputs: tuple[Var, ...]
    tags: tuple[tuple[str, int], ...] = ()
    families: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[str, ...]:
        """The float leaves, with respect to which gradients are taken."""
        return tuple(i.name for i in self.inputs if i.recipe == "float")

    @property
    def rest(self) -> tuple[str, ...]:
        """The other leaves."""
        return tuple(i.name for i in self.inputs if i.recipe != "float")

    @property
    def source(self) -> str:
        """Python that defines `fn`."""
        return WRITERS[self.variant](self)

    @property
    def is_low_precision(self) -> bool:
        """True when 16-bit floats occur."""
        return "bfloat16" in self.source or any(
            i.dtype == "bfloat16" for i in self.inputs
        )


def generate(rng: random.Random) -> Generated:
    """A program of 3 to 12 ops on the top level, bodies not counted."""
    variant = rng.choice(("forward", "forward", "grad", "sgd", "momentum", "adam"))
    dtypes = ("float32", "bfloat16") if rng.randrange(6) == 0 else ("float32",)
    palette = tuple(rng.choice(EXTENTS) for _ in range(4))
    draft = Draft(rng, variant != "forward", dtypes, (8, *palette))
    top = Scope(draft)
    for _ in range(rng.choice((2, 3, 3, 4))):
        rank = rng.choice((1, 2, 2, 2, 3))
        top.input(tuple(draft.extent() for _ in range(rank)), rng.choice(dtypes))
    for dtype in ("int32", "bool"):
        if draft.chance(0.5):
            top.input(tuple(draft.extent() for _ in range(rng.choice((1, 2)))), dtype)
    grow(top, rng.randrange(3, 13))
    outputs = choose_outputs(top)
    if not any(i.recipe == "float" for i in draft.inputs) or not any(
        v.is_float for v in outputs
    ):
        variant = "forward"
    if variant == "forward" and draft.chance(0.05):
        outputs.append(Var("2.5", (), "float32"))
    return Generated(
        variant, tuple(draft.inputs), tuple(top.lines),
        tuple(v for v in top.pool if v.name.startswith("v")), tuple(outputs),
        tuple(draft.tags), tuple(draft.families.elements()),
        tuple(draft.rejected.elements()),
    )  # fmt: skip


def grow(s: Scope, count: int) -> None:
    """Add ops of random families; one that cannot be traced is dropped."""
    families: list[tuple[Callable[..., None], int]] = list(FLAT)
    if s.depth < MAX_DEPTH:
        families += NESTED
    totals = list(accumulate(weight for _, weight in families))
    for _ in range(3 * count):
        ticket = s.rng.randrange(totals[-1])
        family = families[next(i for i, t in enumerate(totals) if ticket < t)][0]
        try:
            family(s, grow) if family in REGIONS else family(s)
        except NoFitError:
            continue
        except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
            s.draft.rejected[
                f"{family.__name__}: {str(error).splitlines()[0][:90]}"
            ] += 1
            continue
        s.draft.families[family.__name__] += 1
        count -= 1
        if count == 0:
            return


NESTED = (*regions.FAMILIES, *accumulation.FAMILIES)
REGIONS = frozenset(family for family, _ in NESTED)


def choose_outputs(s: Scope) -> list[Var]:
    """What nothing reads, and perhaps an input or another value."""
    text = "\n".join(s.lines)
    made = [v for v in s.pool if v.name.startswith("v")]
    sinks = [v for v in made if len(re.findall(rf"\b{v.name}\b", text)) == 1]
    outputs = sinks[-4:] or made[-1:] or s.pool[-1:]
    if s.draft.chance(0.2):
        outputs = [*outputs, s.rng.choice(s.pool)]
    return [v for v in outputs if not v.dtype.startswith("key")] or s.pool[-1:]


def write_forward(g: Generated) -> str:
    """The function itself."""
    results = ", ".join(v.name for v in g.outputs)
    rows = indent([*g.lines, f"return {results},"])
    return f"def fn({', '.join(i.name for i in g.inputs)}):\n{rows}\n"


def write_loss(g: Generated) -> str:
    """A scalar function of `p` and the rest, with auxiliary results."""
    terms = " + ".join(
        f"jnp.mean(jnp.sin({v.name}.astype(jnp.float32)))"
        for v in g.outputs
        if v.is_float
    )
    aux = ", ".join(v.name for v in g.outputs)
    unpack = f"({', '.join(g.params)},) = ({', '.join(f'p[{n!r}]' for n in g.params)},)"
    rows = indent([unpack, *g.lines, f"return {terms}, ({aux},)"])
    return f"def loss({', '.join(['p', *g.rest])}):\n{rows}\n"


def write_grad(g: Generated) -> str:
    """The loss, its gradients, and the auxiliary results."""
    args = ", ".join(["p", *g.rest])
    call = f"jax.value_and_grad(loss, has_aux=True)({args})"
    return f"{write_loss(g)}def fn({args}):\n    return {call}\n"


def write_step(update: str) -> Callable[[Generated], str]:
    """A training step with that update of `state`."""

    def write(g: Generated) -> str:
        call = ", ".join(["state['p']", *g.rest])
        take = f"(l, _), g = jax.value_and_grad(loss, has_aux=True)({call})"
        rows = indent([take, "p, m, v, t = (state.get(k) for k in 'pmvt')", update])
        args = ", ".join(["state", *g.rest])
        return f"{write_loss(g)}def fn({args}):\n{rows}\n    return new, l\n"

    return write


_SGD = "new = {'p': jax.tree.map(lambda a, b: (a - 0.1 * b).astype(a.dtype), p, g)}"
_MOMENTUM = """\
m = jax.tree.map(lambda a, b: (0.9 * a + b).astype(a.dtype), m, g)
new = {'p': jax.tree.map(lambda a, b: (a - 0.1 * b).astype(a.dtype), p, m), 'm': m}"""
_ADAM = """\
t = t + 1
m = jax.tree.map(lambda a, b: (0.9 * a + 0.1 * b).astype(a.dtype), m, g)
v = jax.tree.map(lambda a, b: (0.99 * jnp.abs(a) + 0.01 * b * b).astype(a.dtype), v, g)
c = 1 - 0.9 ** t.astype(jnp.float32)
p = jax.tree.map(lambda a, b, d: (a - 0.1 * b / c / (jnp.sqrt(d + 0.01))).astype(a.dtype), p, m, v)
new = {'p': p, 'm': m, 'v': v, 't': t}"""

WRITERS: dict[str, Callable[[Generated], str]] = {
    "forward": write_forward,
    "grad": write_grad,
    "sgd": write_step(_SGD),
    "momentum": write_step(_MOMENTUM),
    "adam": write_step(_ADAM),
}
