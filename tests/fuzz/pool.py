"""Scopes under construction: live arrays, and the lines of Python that made them."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.special
import numpy as np
from jax import lax

import meshwright as mw

LIBRARY = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "mw": mw}
"""What generated code may name."""

MAX_ELEMENTS = 2048
MAX_BOUND = 3.0
EXTENTS = (8, 8, 8, 8, 16, 4, 4, 4, 12, 6, 2, 3, 1)


class NoFitError(Exception):
    """The pool holds nothing that this family of ops can use."""


@dataclass(frozen=True, slots=True)
class Var:
    """A live array of the program.

    bound: its elements' magnitude, about. is_exact: no rounding went into it, so that
    an op with jumps (argmax, sort, floor, <) may read it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: float = 1.0
    is_exact: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Real floating point."""
        return self.dtype in ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Input:
    """A leaf that the program takes; `recipe` says how its numbers are drawn."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    recipe: str

    def values(self, rng: np.random.Generator) -> Any:
        """Concrete numbers; a key for recipe "key"."""
        if self.recipe == "key":
            return jax.random.key(int(rng.integers(1 << 30)))
        if self.recipe == "int":
            return rng.integers(-6, 12, self.shape).astype(self.dtype)
        if self.recipe == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        x = np.clip(rng.standard_normal(self.shape), -2, 2)
        return x.astype(jnp.dtype(self.dtype))


@dataclass
class Draft:
    """What all scopes of one program share."""

    rng: random.Random
    is_smooth: bool  # gradients are taken: keep to what has them
    dtypes: tuple[str, ...] = ("float32",)
    palette: tuple[int, ...] = EXTENTS
    inputs: list[Input] = field(default_factory=list)
    tags: list[tuple[str, int]] = field(default_factory=list)
    families: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name that is not in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def extent(self) -> int:
        """A dim's extent, mostly one that meshes divide."""
        return self.rng.choice(self.palette)

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.rng.randrange(1000) < 1000 * probability


class Scope:
    """One body: the top level, or the inside of a loop, branch or nested function."""

    def __init__(
        self, draft: Draft, pool: Sequence[Var] = (), outer: Scope | None = None
    ) -> None:
        self.draft = draft
        self.rng = draft.rng
        self.pool = list(pool)
        self.lines: list[str] = []
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1

    # -- choosing -------------------------------------------------------------------

    def pick(self, fits: Callable[[Var], bool]) -> Var:
        """A live array that fits, a recent one more likely."""
        found = [v for v in self.pool if fits(v)]
        if not found:
            raise NoFitError
        recent = found[-3:]
        return self.rng.choice(recent if self.draft.chance(0.5) else found)

    def floats(self, min_rank: int = 0, max_rank: int = 4) -> Var:
        """A real floating-point array of some rank."""
        return self.pick(lambda v: v.is_float and min_rank <= len(v.shape) <= max_rank)

    def exact(self, min_rank: int = 0) -> Var:
        """An array of numbers without rounding, floats or ints."""
        return self.pick(
            lambda v: (
                v.is_exact
                and len(v.shape) >= min_rank
                and v.dtype in ("float32", "bfloat16", "int32")
            )
        )

    def arrays(self, min_rank: int = 0) -> Var:
        """Any array but keys."""
        return self.pick(
            lambda v: len(v.shape) >= min_rank and not v.dtype.startswith("key")
        )

    def ints(self, min_rank: int = 0, max_rank: int = 4) -> Var:
        """An int32 array; made from an input if there is none."""
        fits = [
            v for v in self.pool
            if v.dtype == "int32" and min_rank <= len(v.shape) <= max_rank
        ]  # fmt: skip
        if fits:
            return self.rng.choice(fits)
        shape = tuple(self.draft.extent() for _ in range(min_rank))
        return self.input(shape, "int32")

    def masks(self, shape: tuple[int, ...]) -> Var:
        """A bool array that broadcasts to `shape` without enlarging it."""
        fits = [v for v in self.pool if v.dtype == "bool" and stretches(v.shape, shape)]
        if fits and not self.draft.chance(0.2):
            return self.rng.choice(fits)
        return self.input(shape[self.rng.randrange(len(shape) + 1) :], "bool")

    def scalar_int(self) -> str:
        """An expression of a traced scalar int."""
        v = self.ints()
        if not v.shape:
            return v.name
        return f"{v.name}[{', '.join(str(self.rng.randrange(n)) for n in v.shape)}]"

    def dim(self, v: Var) -> int:
        """Some dim of an array."""
        return self.rng.randrange(len(v.shape))

    def input(self, shape: tuple[int, ...], dtype: str = "float32") -> Var:
        """A new input of the program; inside a body it is closed over."""
        recipe = {"int32": "int", "bool": "bool"}.get(dtype, "float")
        recipe = "key" if dtype.startswith("key") else recipe
        leaf = Input(self.draft.fresh("x"), shape, dtype, recipe)
        self.draft.inputs.append(leaf)
        var = Var(leaf.name, shape, dtype, 12.0 if recipe == "int" else 1.0, True)
        scope: Scope | None = self
        while scope is not None:
            scope.pool.insert(0, var)
            scope = scope.outer
        return var

    def smooth(self, code: str) -> str:
        """An expression that gradients must not enter."""
        return f"lax.stop_gradient({code})" if self.draft.is_smooth else code

    # -- writing --------------------------------------------------------------------

    def emit(self, code: str, bound: float = 1.0, is_exact: bool = False) -> Var:
        """Append `v = code`; large results are squashed."""
        if bound > MAX_BOUND and not is_exact:
            code, bound = f"jnp.tanh({code})", 1.0
        return self.emit_block("{0} = " + code, 1, bound, is_exact)[0]

    def emit_block(
        self, code: str, count: int, bound: float = 1.0, is_exact: bool = False
    ) -> list[Var]:
        """Append code that binds `count` names, `{0}`, `{1}`, ..."""
        names = [self.draft.fresh() for _ in range(count)]
        for i, name in enumerate(names):
            code = code.replace("{%d}" % i, name)
        made = [
            Var(name, tuple(a.shape), str(a.dtype), bound,
                is_exact or a.dtype in (np.int32, np.bool_))
            for name, a in zip(names, self.abstract(code, names), strict=True)
        ]  # fmt: skip
        if any(v.size > MAX_ELEMENTS or not v.size for v in made):
            raise NoFitError
        self.lines.append(code)
        self.pool.extend(made)
        return made

    def abstract(self, code: str, names: Sequence[str]) -> list[Any]:
        """Shapes and dtypes of what code binds, by tracing it."""
        mentioned = set(re.findall(r"[a-z]+\d+", code))
        reads = [v for v in self.pool if v.name in mentioned]

        def run(*values: Any) -> list[Any]:
            scope = {
                **LIBRARY,
                **dict(zip([v.name for v in reads], values, strict=True)),
            }
            exec(code, scope)
            return [jnp.asarray(scope[name]) for name in names]

        return jax.eval_shape(run, *map(abstract, reads))


def abstract(v: Var) -> Any:
    """What tracing needs to know of an array."""
    if v.dtype.startswith("key"):
        return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), v.shape))
    return jax.ShapeDtypeStruct(v.shape, v.dtype)


def stretches(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """True when an array of `shape` broadcasts to `to`."""
    if len(shape) > len(to):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def indent(lines: Sequence[str], depth: int = 1) -> str:
    """Lines, those with several rows included, moved to the right."""
    pad = "    " * depth
    return "\n".join(pad + row for line in lines for row in line.split("\n"))
