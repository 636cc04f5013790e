"""Families with bodies: loops, branches, remat, vmap, calls with rules of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from tests.fuzz.pool import NoFitError, Scope, Var, indent, stretches

Grow = Callable[[Scope, int], None]
"""Adds some ops to a scope; the way back to the table of all families."""


def arguments(s: Scope, shapes: Sequence[tuple[tuple[int, ...], Var]]) -> list[Var]:
    """What a body calls its arguments, each like a live array in another shape."""
    return [
        Var(s.draft.fresh("a"), shape, like.dtype, like.bound, like.is_exact)
        for shape, like in shapes
    ]


def inside(s: Scope, args: Sequence[Var], grow: Grow) -> Scope:
    """A body over its arguments and a few live arrays outside, with some ops."""
    closed_over = [v for v in s.pool if s.draft.chance(0.3)][-3:]
    body = Scope(s.draft, [*closed_over, *args], s)
    grow(body, s.rng.choice((1, 1, 2, 3)))
    return body


def like(s: Scope, want: Var) -> str:
    """An expression of the shape and dtype of `want`, from it and something recent."""
    fits = [
        v for v in s.pool
        if v != want and stretches(v.shape, want.shape)
        and (v.dtype == want.dtype or (v.is_float and want.is_float))
    ]  # fmt: skip
    other = s.rng.choice(fits[-3:]).name if fits else None
    if want.dtype == "int32":
        return f"({want.name} + {other or 1}) % 9"
    if want.dtype == "bool":
        return f"{want.name} ^ {other or True}"
    if other is None:
        whole = [v for v in s.pool if v.is_float]
        other = f"jnp.mean({s.rng.choice(whole[-3:]).name})" if whole else "1.0"
    return f"jnp.tanh(0.7 * {want.name} + 0.5 * {other}).astype({want.name}.dtype)"


def define(s: Scope, args: Sequence[str], body: Scope, result: str) -> tuple[str, str]:
    """(name, source) of a nested function."""
    name = s.draft.fresh("f")
    rows = indent([*body.lines, f"return {result}"])
    return name, f"def {name}({', '.join(args)}):\n{rows}\n"


def names(variables: Sequence[Var]) -> list[str]:
    return [v.name for v in variables]


def tuple_of(parts: Sequence[str]) -> str:
    """Source of a tuple, of one part too."""
    return f"({', '.join(parts)},)" if parts else "()"


def is_carry(v: Var) -> bool:
    return v.dtype in ("float32", "bfloat16", "int32") and v.size <= 512


def scan(s: Scope, grow: Grow) -> None:
    """A scan with carries, scanned-over arrays and stacked results."""
    carries = [s.pick(is_carry) for _ in range(s.rng.choice((0, 1, 1, 2)))]
    first = s.arrays(1)
    slices = [first] if s.draft.chance(0.8) or not carries else []
    slices += [v for v in s.pool if v.shape and v.shape[0] == first.shape[0]
               and not v.dtype.startswith("key")][: len(slices) * s.rng.choice((0, 0, 1))]  # fmt: skip
    length = first.shape[0] if slices else s.rng.choice((2, 3, 4))
    if length > 8:
        raise NoFitError
    inner = arguments(s, [(v.shape, v) for v in carries])
    inner = [Var(v.name, v.shape, v.dtype, 1.5, v.dtype == "int32") for v in inner]
    rows = arguments(s, [(v.shape[1:], v) for v in slices])
    body = inside(s, [*inner, *rows], grow)
    ends = [like(body, v) for v in inner]
    stacked = [
        v for v in body.pool[-3:] if v.size <= 128 and not v.dtype.startswith("key")
    ]
    stacked = stacked[: s.rng.choice((0, 1, 1, 2)) or (not carries)]
    if not carries and not stacked:
        raise NoFitError
    name, code = define(
        s, ["c0", "r0"], body, f"{tuple_of(ends)}, {tuple_of(names(stacked))}"
    )
    head = [f"{tuple_of(names(inner))} = c0"] if inner else []
    head += [f"{tuple_of(names(rows))} = r0"] if rows else []
    code = code.replace(":\n", ":\n" + indent(head) + "\n" if head else ":\n", 1)
    made = [f"{{{i}}}" for i in range(len(ends) + len(stacked))]
    targets = f"{tuple_of(made[: len(ends)])}, {tuple_of(made[len(ends) :])}"
    targets = targets.replace("(), ", "_, ").replace(", ()", ", _")
    extra = f", length={length}" if not slices else ""
    extra += ", reverse=True" if s.draft.chance(0.2) else ""
    extra += f", unroll={s.rng.choice((2, 3))}" if s.draft.chance(0.1) else ""
    xs = tuple_of(names(slices)) if slices else "None"
    call = f"{targets} = lax.scan({name}, {tuple_of(names(carries))}, {xs}{extra})"
    s.emit_block(code + call, len(made), 1.5)


def loop(s: Scope, grow: Grow) -> None:
    """A `fori_loop` or a `while_loop` whose condition looks at what it carries."""
    carries = [s.pick(is_carry) for _ in range(s.rng.choice((1, 1, 2)))]
    inner = arguments(s, [(v.shape, v) for v in carries])
    inner = [Var(v.name, v.shape, v.dtype, 1.5, v.dtype == "int32") for v in inner]
    counter = Var(s.draft.fresh("a"), (), "int32", 3.0, True)
    body = inside(s, [counter, *inner], grow)
    ends = [like(body, v) for v in inner]
    made = [f"{{{i}}}" for i in range(len(ends))]
    head = indent([f"{tuple_of(names(inner))} = c0"])
    if s.draft.chance(0.4):
        name, code = define(s, [counter.name, "c0"], body, tuple_of(ends))
        count = s.rng.choice((2, 3, f"{s.scalar_int()} % 4"))
        count = count if isinstance(count, int) or not s.draft.is_smooth else 3
        init = tuple_of(names(carries))
        call = f"{tuple_of(made)} = lax.fori_loop(0, {count}, {name}, {init})"
    else:
        head = indent([f"{tuple_of([counter.name, *names(inner)])} = c0"])
        name, code = define(s, ["c0"], body, tuple_of([f"{counter.name} + 1", *ends]))
        init = ["0", *(s.smooth(v) for v in names(carries))]
        stop = s.rng.choice(("c[0] < 3", "(c[0] < 2) & jnp.all(jnp.abs(c[1]) < 100)",
                             f"c[0] < {s.scalar_int()} % 5"))  # fmt: skip
        call = f"_, {', '.join(made)} = lax.while_loop(lambda c: {stop}, {name}, {tuple_of(init)})"
    code = code.replace(":\n", ":\n" + head + "\n", 1)
    if s.draft.is_smooth and "while_loop" in call:
        call = (
            call.replace(
                "lax.while_loop(", "jax.tree.map(lax.stop_gradient, lax.while_loop("
            )
            + ")"
        )
        code = _stopped(code, s, body)
    s.emit_block(code + call, len(made), 1.5)


def _stopped(code: str, s: Scope, body: Scope) -> str:
    """The body with gradients kept out of the floats that it closes over."""
    outside = [v for v in s.pool if v in body.pool and v.is_float]
    mark = s.draft.fresh("_")
    lines = [f"{v.name}{mark} = lax.stop_gradient({v.name})" for v in outside]
    for v in outside:
        code = re.sub(rf"\b{v.name}\b", v.name + mark, code)
    return "\n".join([*lines, code]) if lines else code


def branch(s: Scope, grow: Grow) -> None:
    """A `cond` or `switch` on something exact."""
    given = [s.arrays() for _ in range(s.rng.choice((1, 2)))]
    wanted = [s.rng.choice(given) for _ in range(s.rng.choice((1, 1, 2)))]
    if any(not is_carry(v) for v in wanted):
        raise NoFitError
    count = s.rng.choice((2, 2, 3))
    code, branches = "", []
    for _ in range(count):
        inner = arguments(s, [(v.shape, v) for v in given])
        body = inside(s, inner, grow)
        ends = [like(body, inner[given.index(v)]) for v in wanted]
        name, source = define(s, names(inner), body, tuple_of(ends))
        code += source
        branches.append(name)
    made = tuple_of([f"{{{i}}}" for i in range(len(wanted))])
    args = ", ".join(names(given))
    if count == 2:
        test = s.rng.choice(
            (f"{s.scalar_int()} % 2 == 0", f"jnp.sum({s.ints().name}) > 4")
        )
        call = f"{made} = lax.cond({test}, {branches[0]}, {branches[1]}, {args})"
    else:
        index = f"{s.scalar_int()} % 4"
        call = f"{made} = lax.switch({index}, [{', '.join(branches)}], {args})"
    s.emit_block(code + call, len(wanted), 1.5)


def call(s: Scope, grow: Grow) -> None:
    """A body under `jax.checkpoint` or `jax.jit`."""
    given = [s.arrays() for _ in range(s.rng.choice((1, 2)))]
    inner = arguments(s, [(v.shape, v) for v in given])
    body = inside(s, inner, grow)
    results = [
        v for v in body.pool[-2:] if v not in inner and not v.dtype.startswith("key")
    ]
    results = [v for v in results if v not in s.pool] or [body.pool[-1]]
    name, code = define(s, names(inner), body, tuple_of(names(results)))
    wrapper = s.rng.choice(
        ("jax.checkpoint({f})", "jax.checkpoint({f})", "jax.jit({f})",
         "jax.checkpoint({f}, policy=jax.checkpoint_policies.dots_saveable)",
         "jax.checkpoint({f}, policy=jax.checkpoint_policies.nothing_saveable, prevent_cse=False)")
    )  # fmt: skip
    made = tuple_of([f"{{{i}}}" for i in range(len(results))])
    wrapped = wrapper.format(f=name)
    s.emit_block(
        f"{code}{made} = {wrapped}({', '.join(names(given))})", len(results), 3.0
    )


def vmap(s: Scope, grow: Grow) -> None:
    """A body mapped over one dim, other arguments mapped along or not at all."""
    first = s.arrays(1)
    given, axes = [first], [s.dim(first)]
    extent = first.shape[axes[0]]
    other = s.arrays()
    if s.draft.chance(0.5):
        same = [d for d, n in enumerate(other.shape) if n == extent]
        given.append(other)
        axes.append(s.rng.choice(same) if same and s.draft.chance(0.7) else None)
    shapes = [
        (v.shape if a is None else v.shape[:a] + v.shape[a + 1 :], v)
        for v, a in zip(given, axes, strict=True)
    ]
    inner = arguments(s, shapes)
    body = inside(s, inner, grow)
    result = body.pool[-1]
    if result.dtype.startswith("key") or result in s.pool:
        raise NoFitError
    name, code = define(s, names(inner), body, result.name)
    out = s.rng.randrange(len(result.shape) + 1)
    mapped = f"jax.vmap({name}, in_axes={tuple(axes)}, out_axes={out})"
    s.emit_block(f"{code}{{0}} = {mapped}({', '.join(names(given))})", 1, 3.0)


def custom(s: Scope, grow: Grow) -> None:
    """A function with a gradient rule of its own."""
    del grow
    x = s.floats()
    name = s.draft.fresh("f")
    kind = s.rng.choice(("vjp", "jvp"))
    code = f"{name} = jax.custom_{kind}(lambda x: jnp.tanh(x) * jnp.mean(jnp.cos(x)))\n"
    if kind == "vjp":
        code += f"{name}.defvjp(lambda x: ({name}(x), jnp.cos(x)), lambda r, g: (0.5 * g * r,))\n"
    else:
        code += (
            f"{name}.defjvp(lambda p, t: ({name}(p[0]), 0.5 * t[0] * jnp.cos(p[0])))\n"
        )
    s.emit_block(f"{code}{{0}} = {name}({x.name})", 1, 1.0)


def recurrence(s: Scope, grow: Grow) -> None:
    """A recurrent network, whose state is multiplied with weights in every step.

    Its backward loop carries a cotangent that meets another in each step.
    """
    del grow
    x = s.pick(lambda v: v.is_float and 2 <= len(v.shape) <= 3 and v.shape[0] <= 8)
    n, wide = x.shape[-1], s.draft.extent()
    down, up = s.input((n, wide)), s.input((wide, n))
    name = s.draft.fresh("f")
    state = f"jnp.tanh(h @ {down.name} / {math.sqrt(n):.3f})"
    mixed = f"{state} @ {up.name} / {math.sqrt(wide):.3f}"
    step = s.rng.choice((f"jnp.tanh(r + {mixed})", f"0.5 * h + r * {mixed}", mixed))
    code = f"def {name}(h, r):\n    h = ({step}).astype(h.dtype)\n    return h, h\n"
    start = f"0.3 * {x.name}[0]"
    s.emit_block(
        f"{code}{{0}}, {{1}} = lax.scan({name}, {start}, {x.name})", 2, 2 * x.bound
    )


FAMILIES = (
    (scan, 4), (loop, 2), (branch, 2), (call, 3), (vmap, 3), (custom, 1),
    (recurrence, 2),
)  # fmt: skip
