"""The report's section on input shardings, with a picture for each sharding.

A picture is a rectangle for the array, divided into its shards, with a bar along a side for
each mesh axis that splits it.
"""

import math
from collections.abc import Sequence

from meshwright.app.explain.sub_axes import explain_sub_axes
from meshwright.app.output.collapse import collapse, group_by
from meshwright.app.output.notebook import folded
from meshwright.app.record.parts import Leaf
from meshwright.app.record.plan_record import PlanRecord, program_of
from meshwright.app.report import markup
from meshwright.app.report.markup import NONE, TIMES, Tooltips, text
from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.program.ir import show_type

_SIDE = 84
"""Longest side of a picture in pixels."""

_BAR = 9
"""Width of a bar in pixels."""

_MOST = 16
"""Most shards that are drawn along a side."""

_SHOWN = 24
"""Most cards (groups of inputs) that are shown at once."""

_COLOURS = 6
"""Number of colours of mesh axes."""

_PATHS = 4
"""Most paths on a card."""


def draw_shardings(plan: PlanRecord, tips: Tooltips) -> str:
    """HTML section with a card for each shape and sharding of inputs, and their paths."""
    # Mesh axes, then the sub-axes that reshapes split them into.
    axes = Mesh(plan.mesh.shape | program_of(plan).lowered.mesh.shape)
    groups = group_by(
        (leaf for leaf in plan.inputs if any(leaf.spec)),
        lambda leaf: (leaf.shape, leaf.dtype, leaf.spec),
    )
    leaves = sorted(groups.values(), key=lambda g: -len(g) * g[0].num_bytes)
    cards = [_card(group, plan.mesh.num_devices, axes, tips) for group in leaves]
    body = markup.legend(
        markup.chip(_colour(axes, axis), f"{text(axis)} {TIMES} {size}")
        for axis, size in plan.mesh.sizes
    )
    body += f'<div class="leaves">{"".join(cards[:_SHOWN])}</div>'
    rest = f'<div class="leaves">{"".join(cards[_SHOWN:])}</div>'
    body += markup.more(len(cards) - _SHOWN, rest)
    body += _whole([leaf for leaf in plan.inputs if not any(leaf.spec)])
    lead = (
        "Inputs with the same shape and sharding share a card. A bar along a side is a "
        "mesh axis that partitions it, the outermost axis first; its solid part belongs "
        "to the first device."
    )
    if parts := explain_sub_axes(plan):
        lead += f" Parts of axes: {parts}."
    return markup.section("shardings", "Shardings of the inputs", lead, body)


def _colour(axes: Mesh, axis: str) -> str:
    """The CSS class of a mesh axis; a sub-axis (part of an axis) has that of its axis."""
    return f"a{axes.axes.index(axis.partition(SUB_AXIS)[0]) % _COLOURS}"


def _card(group: Sequence[Leaf], num_devices: int, axes: Mesh, tips: Tooltips) -> str:
    leaf = group[0]
    paths = [
        f"{p} ({TIMES} {n})" if n > 1 else p for p, n in collapse(x.path for x in group)
    ]
    parts = math.prod(axes.size(cut) for cut in leaf.spec)
    held = leaf.num_bytes / parts
    copies = num_devices // parts
    spec = ", ".join(".".join(cut) or NONE for cut in leaf.spec)
    shown = "".join(f"<li>{_breakable(name)}</li>" for name in paths[:_PATHS])
    if paths[_PATHS:]:
        shown += f"<li>and {len(paths) - _PATHS} more</li>"
    kept = (
        f"each part is on {copies} devices" if copies > 1 else "no part is replicated"
    )
    tip = tips.add(*paths[:12], f"{parts} parts on {num_devices} devices; {kept}")
    return (
        f'<div class="leaf" {tip}>{_picture(leaf, axes)}<div><ul>{shown}</ul>'
        f"<p>{text(show_type(leaf.shape, leaf.dtype))}</p><p><b>[{text(spec)}]</b></p>"
        f"<p>1/{parts} per device: {show_bytes(held)} of {show_bytes(leaf.num_bytes)}"
        f"{f', {copies} copies' if copies > 1 else ''}</p></div></div>"
    )


def _breakable(path: str) -> str:
    """HTML of a path that may break into lines after each dot."""
    return text(path).replace(" ", "&nbsp;").replace(".", ".<wbr>")


def _whole(leaves: Sequence[Leaf]) -> str:
    """An HTML line on the replicated inputs, which opens on a click to list them."""
    if not leaves:
        return ""
    size = show_bytes(sum(leaf.num_bytes for leaf in leaves))
    items = "".join(
        f"<li><code>{text(line)}</code>{f' ({TIMES} {n})' if n > 1 else ''}</li>"
        for line, n in collapse(str(leaf) for leaf in leaves)
    )
    title = f"{len(leaves)} more are replicated on every device, {size} together"
    return folded(title, f"<ul>{items}</ul>")


# -- the picture -----------------------------------------------------------------------


def _picture(leaf: Leaf, axes: Mesh) -> str:
    """SVG of the shards of an array, with at most two sharded dims.

    The first sharded dim runs downwards, the second to the right.
    """
    down, right = _sides(leaf)
    rows = () if down is None else leaf.spec[down]
    columns = () if right is None else leaf.spec[right]
    width, height = _extent(leaf, down, right)
    x, y = _BAR * len(rows), _BAR * len(columns)
    marks = _parts(width, height, axes.size(columns), axes.size(rows))
    for i, axis in enumerate(rows):
        for start, length, look in _strip(axes, rows, i, height):
            marks += (
                f'<rect class="{_colour(axes, axis)}{look}" x="{_BAR * i - x}" '
                f'y="{start:.2f}" width="{_BAR - 2}" height="{length:.2f}"/>'
            )
    for i, axis in enumerate(columns):
        for start, length, look in _strip(axes, columns, i, width):
            marks += (
                f'<rect class="{_colour(axes, axis)}{look}" x="{start:.2f}" '
                f'y="{_BAR * i - y}" width="{length:.2f}" height="{_BAR - 2}"/>'
            )
    size = _SIDE + 2 * _BAR + 2
    return (
        f'<svg class="cut" viewBox="0 0 {size} {size}" role="img" aria-label="sharding"'
        f'><g transform="translate({x + 1} {y + 1})">{marks}</g></svg>'
    )


def _parts(width: int, height: int, across: int, along: int) -> str:
    """SVG of the array as a rectangle, the shard of device 0, and the lines between shards.

    across, along: number of shards to the right and downwards.
    """
    across, along = min(_MOST, across), min(_MOST, along)
    lines = [f"M0,{height * i / along:.2f}h{width}" for i in range(1, along)]
    lines += [f"M{width * i / across:.2f},0v{height}" for i in range(1, across)]
    return (
        f'<rect class="tensor" width="{width}" height="{height}"/>'
        f'<rect class="mine" width="{width / across:.2f}" '
        f'height="{height / along:.2f}"/><path class="cuts" d="{"".join(lines)}"/>'
    )


def _sides(leaf: Leaf) -> tuple[int | None, int | None]:
    """The dims that the picture draws downwards and to the right; `None` for no dim."""
    cut = [dim for dim, axes in enumerate(leaf.spec) if axes]
    if len(cut) > 1:
        return cut[0], cut[1]
    is_last = cut[0] == len(leaf.shape) - 1
    return (None, cut[0]) if is_last and len(leaf.shape) > 1 else (cut[0], None)


def _extent(leaf: Leaf, down: int | None, right: int | None) -> tuple[int, int]:
    """Width and height of the picture in pixels.

    Their ratio is nearer to 1 than that of the dims, so that long arrays can be drawn.
    """
    others = [n for d, n in enumerate(leaf.shape) if d not in (down, right)]
    rest = max(others, default=max(leaf.shape))
    tall = rest if down is None else leaf.shape[down]
    wide = rest if right is None else leaf.shape[right]
    ratio = (max(wide, 1) / max(tall, 1)) ** 0.3
    return (
        round(_SIDE * min(1.0, max(0.45, ratio))),
        round(_SIDE * min(1.0, max(0.45, 1 / ratio))),
    )


def _strip(
    axes: Mesh, names: Sequence[str], index: int, length: int
) -> list[tuple[float, float, str]]:
    """The pieces of one axis's bar along a side: start, length and CSS class of each.

    names: the axes that split the side, major to minor. index: position of this axis in
        `names`. length: length of the side in pixels.
    """
    outer, size = axes.size(names[:index]), axes.size(names[index : index + 1])
    if outer * size > 2 * _MOST:
        return [(0.0, float(length), "")]
    part = length / (outer * size)
    return [
        (i * part, max(part - 1, 0.5), "" if i == 0 else " pale")
        for i in range(outer * size)
    ]
