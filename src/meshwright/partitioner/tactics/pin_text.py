"""The sharding of one node as text, such as `[data, -]; sum [model]; reduce model`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node, join_sub_axes
from meshwright.partitioner.structure.workspace import Workspace

type Axes = tuple[str, ...]

_DIMS = re.compile(r"\[(.*)\]")
_SUBJECT = re.compile(r"^(sum|factor \d+) ")
_RESULT = re.compile(r"result (\d+): (.*)")
_WORDS = (
    "'[data, -]', 'sum [model]', 'reduce model', 'reduce-scatter model 1', "
    "'scatter model 1', 'keep [data, -]' or 'factor 3 [data]', separated by '; '"
)


@dataclass(frozen=True, slots=True)
class NodePin:
    """All decisions about one node: mesh axes by factor of its rule, and on results.

    values: by number of the result, the texts about it that `write_value` reads.
    """

    axes: Mapping[int, Axes]
    values: Mapping[int, Sequence[str]]


# -- writing ----------------------------------------------------------------------------


def show_pin(work: Workspace, node: Node) -> str:
    """All decisions about a node as text, which `read_pin` reads; "" if there are none."""
    state = work.state
    axes = {f: a for f, a in state.axes_of[node.index].items() if a}
    parts = _show_axes(work, node, axes)
    values = {
        number: shown
        for number, (value, _) in enumerate(node.outs)
        if (shown := _show_value(work, value))
    }
    for number, shown in values.items():
        parts += [f"result {number}: {text}" if number else text for text in shown]
    return "; ".join(parts)


def _show_axes(work: Workspace, node: Node, axes: Mapping[int, Axes]) -> list[str]:
    dims = node.outs[0][1] if node.outs else ()
    shown = [tuple(a for f in factors for a in axes.get(f, ())) for factors in dims]
    sums = [axes.get(f, ()) for f in work.sums(node)]
    named = {f for factors in dims for f in factors} | {*work.sums(node)}
    parts = [_show_dims(work, shown)] if any(shown) else []
    parts += [f"sum {_show_dims(work, sums)}"] if any(sums) else []
    pairs = zip(dims, shown, strict=True)
    is_clear = all(
        _fill(work, node, factors, dim_axes)
        == {f: axes[f] for f in factors if f in axes}
        for factors, dim_axes in pairs
    )
    if not is_clear:  # the axes of a dim do not determine those of its factors
        parts, named = [], set()
    parts += [
        f"factor {f} {_show_dims(work, [a])}" for f, a in axes.items() if f not in named
    ]
    return parts


def _show_value(work: Workspace, value: int) -> list[str]:
    state, parts = work.state, list[str]()
    for axis in state.size:
        dim = state.scattered.get((value, axis))
        is_settled = (value, axis) in state.settled
        if dim is not None:
            verb = "reduce-scatter" if is_settled else "scatter"
            parts.append(f"{verb} {axis} {dim}")
        elif is_settled:
            parts.append(f"reduce {axis}")
    if value in state.kept:
        parts.append(f"keep {_show_dims(work, state.kept[value])}")
    return parts


def _show_dims(work: Workspace, dims: Iterable[Axes]) -> str:
    """The axes of dims as text, such as `[data.model, -]`.

    All sub-axes of an axis in a row are shown as the axis.
    """
    joined = (join_sub_axes(axes, work.sub_axes) for axes in dims)
    return f"[{', '.join('.'.join(axes) or '-' for axes in joined)}]"


# -- reading ----------------------------------------------------------------------------


def read_pin(work: Workspace, name: str, node: Node, text: str) -> NodePin:
    """The decisions about a node that a text describes; `TacticError` for any other text.

    name: of the node, for messages.
    """
    axes: dict[int, Axes] = {}
    values: dict[int, list[str]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        numbered = _RESULT.fullmatch(part)
        number, clause = (int(numbered[1]), numbered[2]) if numbered else (0, part)
        word = clause.partition(" ")[0]
        if word in ("reduce", "reduce-scatter", "scatter", "keep"):
            values.setdefault(number, []).append(clause)
            continue
        dims = _read_dims(work, name, _SUBJECT.sub("", clause))
        factors_of = _factors(work, name, node, clause, len(dims))
        for dim, (factors, cut) in enumerate(zip(factors_of, dims, strict=True)):
            if cut and not factors:
                raise TacticError(f"pin: dim {dim} of {name} cannot be split")
            axes.update(_fill(work, node, factors, cut))
    used = [axis for cut in axes.values() for axis in cut]
    if len(used) != len(set(used)):
        raise TacticError(f"pin: an axis is used twice in {text!r} of {name}")
    return NodePin(axes, values)


def _factors(
    work: Workspace, name: str, node: Node, clause: str, count: int
) -> Sequence[tuple[int, ...]]:
    """The factors of each dim for which a clause gives axes."""
    if clause.startswith("factor "):
        number = int(clause.split()[1])
        if number >= len(node.sizes):
            raise TacticError(
                f"pin: {name} has {len(node.sizes)} factors, no {clause!r}"
            )
        found: Sequence[tuple[int, ...]] = [(number,)]
        what = "factor"
    elif clause.startswith("sum "):
        found, what = [(f,) for f in work.sums(node)], "dims that it sums over"
    else:
        found, what = node.outs[0][1] if node.outs else (), "dims"
    if len(found) != count:
        raise TacticError(
            f"pin: {clause!r} names {count} dims, but {name} has {len(found)} {what}"
        )
    return found


def _fill(
    work: Workspace, node: Node, factors: Sequence[int], axes: Axes
) -> dict[int, Axes]:
    """The axes of each factor of a dim; an axis splits the first factor with room."""
    filled: dict[int, Axes] = {}
    left = list(axes)
    for factor in factors:
        parts = 1
        while left and (factor == factors[-1] or parts < node.sizes[factor]):
            parts *= work.state.size[left[0]]
            filled[factor] = (*filled.get(factor, ()), left.pop(0))
    return filled


def write_value(work: Workspace, name: str, value: int, clause: str) -> None:
    """Write the decision about a value that a text describes, as `reduce model`.

    name: of the node that computes the value, for messages.
    """
    state, rank = work.state, len(work.graph.values[value].shape)
    verb, *rest = clause.split(maxsplit=1)
    words = rest[0].split() if rest else []
    if verb == "keep" and rest:
        kept = tuple(_read_dims(work, name, rest[0]))
        if len(kept) != rank:
            raise _wrong_rank(work, name, value)
        state.keep(value, kept)
    elif verb == "reduce" and len(words) == 1:
        for axis in _sub_axes(work, name, words[0]):
            state.settle(value, axis)
    elif verb != "reduce" and len(words) == 2 and words[1].isdigit():
        if int(words[1]) >= rank:
            raise _wrong_rank(work, name, value)
        for axis in _sub_axes(work, name, words[0]):
            state.scatter(value, axis, int(words[1]))
            if verb == "reduce-scatter":
                state.settle(value, axis)
    else:
        raise TacticError(f"pin: cannot read {clause!r} of {name}; wanted {_WORDS}")


def _wrong_rank(work: Workspace, name: str, value: int) -> TacticError:
    shown = work.graph.values[value]
    return TacticError(
        f"pin: {name} makes {shown}, which has {len(shown.shape)} dims; the text "
        "names others"
    )


def _read_dims(work: Workspace, name: str, text: str) -> list[Axes]:
    found = _DIMS.fullmatch(text.strip())
    if found is None:
        raise TacticError(f"pin: cannot read {text!r} of {name}; wanted {_WORDS}")
    dims = found[1].split(",") if found[1].strip() else []
    return [
        tuple(
            sub_axis
            for axis in dim.strip().split(".")
            if axis != "-"
            for sub_axis in _sub_axes(work, name, axis)
        )
        for dim in dims
    ]


def _sub_axes(work: Workspace, name: str, axis: str) -> Axes:
    """The sub-axes of a mesh axis, or the sub-axis itself if `axis` is one."""
    if axis in work.state.size:
        return (axis,)
    if axis in work.sub_axes:
        return work.sub_axes[axis]
    known = ", ".join(work.sub_axes)
    raise TacticError(
        f"pin: {axis!r} of {name} is no axis of the mesh, which has {known}"
    )
