"""A case of the fuzzer: a program, its arguments, a mesh and tactics, all as text."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import meshwright as mw
from tests.fuzz.cuts import Cuts
from tests.fuzz.pool import LIBRARY
from tests.fuzz.program import Generated, generate

MESHES = (
    {"a": 8}, {"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 2, "b": 4}, {"a": 3, "b": 2},
    {"a": 2}, {"a": 4},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a run needs; `tactics` are expressions.

    in_time: the axis that is sequential, if any; its tactics come last.
    """

    program: Generated
    mesh: tuple[tuple[str, int], ...]
    tactics: tuple[str, ...]
    gather: str
    donates: bool
    seed: int
    in_time: str = ""

    def fn(self) -> Callable[..., Any]:
        """The function, from its source."""
        scope: dict[str, Any] = dict(LIBRARY)
        exec(self.program.source, scope)
        return scope["fn"]

    def args(self) -> tuple[Any, ...]:
        """Concrete arguments, the same each time."""
        rng = np.random.default_rng(self.seed)
        program = self.program
        leaves = {i.name: i.values(rng) for i in program.inputs}
        if program.variant == "forward":
            return tuple(leaves.values())
        p = {n: leaves.pop(n) for n in program.params}
        state: dict[str, Any] = {"p": p}
        if program.variant in ("momentum", "adam"):
            state["m"] = {n: (0.1 * x).astype(x.dtype) for n, x in p.items()}
        if program.variant == "adam":
            state["v"] = {n: (0.1 * x * x).astype(x.dtype) for n, x in p.items()}
            state["t"] = np.int32(2)
        return (p if program.variant == "grad" else state, *leaves.values())

    def finer(self) -> Case:
        """This case with 32-bit floats throughout."""
        program = self.program
        inputs = tuple(
            replace(i, dtype="float32") if i.dtype == "bfloat16" else i
            for i in program.inputs
        )
        lines = tuple(line.replace("bfloat16", "float32") for line in program.lines)
        return replace(self, program=replace(program, inputs=inputs, lines=lines))

    def partitioned(self) -> mw.Partitioned:
        """The function on the mesh, as the tactics say."""
        tactics = [eval(t, {**LIBRARY, "Cuts": Cuts}) for t in self.tactics]
        if self.in_time:
            tactics.sort(key=lambda tactic: self.in_time in (tactic.axes or ()))
        donated = 0 if self.donates else None
        return mw.partition(
            self.fn(),
            self.whole_mesh(),
            tactics,
            gather=self.gather,
            donate_argnums=donated,
        )

    def whole_mesh(self) -> mw.Mesh:
        """The mesh, with its sequential axis."""
        sizes = dict(self.mesh)
        in_time = {self.in_time: sizes.pop(self.in_time)} if self.in_time else None
        return mw.Mesh(sizes, sequential=in_time)

    def to_json(self) -> dict[str, Any]:
        """Plain data, enough to run it again."""
        return asdict(self)

    def __str__(self) -> str:
        inputs = "".join(
            f"# {i.name}: {i.dtype}{list(i.shape)}\n" for i in self.program.inputs
        )
        tactics = "".join(f"    {t},\n" for t in self.tactics)
        return (
            f"{inputs}{self.program.source}\n# {self.program.variant}, seed {self.seed}\n"
            f"mw.partition(fn, {self.whole_mesh()!r}, [\n{tactics}], gather={self.gather!r})"
        )


def draw_case(rng: random.Random) -> Case:
    """A program and a schedule for it."""
    program = generate(rng)
    mesh = rng.choice(MESHES)
    tactics = draw_tactics(rng, program, mesh)
    is_step = program.variant not in ("forward", "grad")
    return Case(
        program, tuple(mesh.items()), tactics, rng.choice(("shared", "at_use")),
        is_step and rng.randrange(3) == 0, rng.randrange(1 << 30),
    )  # fmt: skip


def draw_tactics(
    rng: random.Random, program: Generated, mesh: dict[str, int]
) -> tuple[str, ...]:
    """One to six tactics, most of which split something."""
    count = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
    return tuple(draw_tactic(rng, program, mesh) for _ in range(count))


NAMED = (
    "mw.data_parallel({axis})", "mw.zero(2, {axis})", "mw.zero(3, {axis})", "mw.fsdp({axis})",
    "mw.megatron({axis})", "mw.sequence_parallel({axis})", "mw.expert_parallel({axis})",
)  # fmt: skip


def draw_tactic(rng: random.Random, program: Generated, mesh: dict[str, int]) -> str:
    """One tactic as an expression."""
    axis = rng.choice(list(mesh))
    kind = rng.randrange(25)
    if kind >= 20:
        return f"Cuts({rng.randrange(1000)}, {rng.choice((1, 2, 4, 16))}, {axis!r})"
    if kind == 0:
        axes = rng.choice((f", axis={axis!r}", ""))
        return f"mw.replicate({pattern(rng, program)!r}{axes})"
    if kind == 1:
        return f"mw.shard({{'**': mw.FIRST_DIVISIBLE}}, {axis!r})"
    if kind == 2:
        name = pattern(rng, program)
        return f"mw.shard({{{name!r}: mw.FIRST_DIVISIBLE}}, {axis!r})"
    if kind == 3:
        return f"mw.shard(lambda path, value: len(value.shape) - 1 if value.shape else None, {axis!r})"
    if kind in (4, 5, 6, 8, 9) and program.tags:
        name, rank = rng.choice(program.tags)
        return f"mw.shard({{'tag:{name}': {rng.randrange(rank)}}}, {axis!r})"
    if kind == 7 and program.variant != "forward" and rng.randrange(3) == 0:
        return rng.choice(NAMED).format(axis=repr(axis))
    dims = dict(
        draw_dim(rng, program, mesh[axis]) for _ in range(rng.choice((1, 1, 1, 2, 3)))
    )
    extra = rng.randrange(12) == 0
    if extra:
        dims[pattern(rng, program)] = "mw.REPLICATED"
    inner = ", ".join(f"{k!r}: {v}" for k, v in dims.items())
    return f"mw.shard({{{inner}}}, {axis!r})"


def draw_dim(rng: random.Random, program: Generated, size: int) -> tuple[str, str]:
    """A leaf and one of its dims, mostly one that the axis divides."""
    every = [
        (i.name, d) for i in program.inputs for d, n in enumerate(i.shape)
        if n % size == 0 or rng.randrange(10) == 0
    ]  # fmt: skip
    if not every:
        return pattern(rng, program), "None"
    name, d = rng.choice(every)
    whole = next(i for i in program.inputs if i.name == name)
    return path(program, name, rng), str(
        d if rng.randrange(4) else d - len(whole.shape)
    )


def pattern(rng: random.Random, program: Generated) -> str:
    """A pattern for some leaf."""
    return path(program, rng.choice(program.inputs).name, rng)


def path(program: Generated, name: str, rng: random.Random) -> str:
    """A name of a leaf for a tactic: its path, or a pattern that matches it."""
    if program.variant == "forward" or name not in program.params:
        return name
    if program.variant == "grad":
        return f"p.{name}"
    return rng.choice((f"state.p.{name}", f"**.{name}"))
