"""Analytic placement: all blocks move at once along gradients of smooth costs.

Wirelength is the weighted-average model (Hsu, Chang and Balabanov, DAC 2011). Density is
the energy of blocks as electric charges, whose potential a cosine transform solves, and
Nesterov's method with steps from the change of the gradient goes down (ePlace, Lu et al.,
TODAES 2015). For congestion the box of each net uses the wires of its cells evenly (RUDY,
Spindler and Johannes, DATE 2007), and a power mean stands for the mean of the fullest
cells. Macros may overlap at the end; `legalize` moves them apart. Letters in shapes: B
blocks, N nets, P ends of nets, R rows and C columns of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.fft as fft
import numpy as np

from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.starts.room import Room
from meshwright.search.arrays import owners_of

STEPS = 300
"""Steps of Nesterov's method."""

_LENGTH = 0.02
"""Length at which wirelength is smoothed, as a share of the canvas."""

_FIRST, _GROWTH = 0.2, 1.02
"""First force of charges relative to that of wires, its factor after each of `STEPS`."""

_PROBES = 3
"""Steps that are timed."""

_LONGEST = 0.02
"""Longest move of a block in a step, as a share of the canvas."""

_POWER = 6
"""Power of the mean that stands for the mean of the fullest 5 % of cells."""

_CELLS = 2
"""Bins of the density along each side of a cell."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that something may take, by a clock."""

    seconds: float
    clock: Callable[[], float]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class _Chip:
    """Arrays of a chip; lengths in shares of the canvas's width and height.

    size, offset: width and height of blocks [B, 2], offset of ends [P, 2]. moves: 1 for
    blocks that move, [B, 1]. net: of each end. weight, tracks: of nets, in the wirelength
    and in wires as shares of a cell's, across and up.
    aspect: width and height of the canvas over their sum. lines: places of the borders
    of columns and rows of cells, and of bins.
    """

    size: Any
    offset: Any
    moves: Any
    block: Any
    net: Any
    weight: Any
    tracks: Any
    aspect: Any
    cells: tuple[Any, Any]
    bins: tuple[Any, Any]


def analytic(
    placement: ChipPlacement,
    tables: Tables,
    room: Room,
    weights: tuple[float, float, float],
    seed: int,
    patience: Patience | None = None,
) -> ChipPlacement:
    """A placement that `STEPS` steps reach from the centre; macros may overlap.

    seed: of the small random distances from the centre at the beginning.
    patience: how long it may take. Fewer steps are taken if it does not suffice for all,
        in which charges grow as much.
    """
    rng, canvas = np.random.default_rng(seed), placement.canvas
    size = np.array([canvas.width, canvas.height])
    moving = np.concatenate([room.hard, room.soft])
    places = np.stack([placement.x, placement.y], axis=1) / size
    places[moving] = 0.5 + 0.1 * (rng.random((len(moving), 2)) - 0.5)
    chip = _make_chip(tables, moving, size)
    factors = np.array(weights, np.float32)
    at, state = jnp.asarray(places, jnp.float32), None
    for growth in _growths(patience):
        if state is None:
            state = _begin(at, _gradients(chip, at, factors))
        gradients = _gradients(chip, state[1], factors)
        state = _step(chip, state, gradients, np.float32(growth))
        if patience is not None:
            jax.block_until_ready(state)
    assert state is not None, "there is a first step"
    found = np.asarray(state[0], np.float64) * size
    x, y = placement.x.copy(), placement.y.copy()
    x[moving], y[moving] = found[moving].T
    return placement.moved(x, y, placement.orientations)


def _growths(patience: Patience | None) -> Iterator[float]:
    """The factor of the charges' force after each step.

    The first step compiles, and the next ones tell how many there is time for.
    """
    if patience is None:
        yield from [_GROWTH] * STEPS
        return
    first = patience.clock()
    yield _GROWTH
    begin = patience.clock()
    end = first + patience.seconds
    yield from [_GROWTH] * _PROBES
    now = patience.clock()
    left = _PROBES * (end - now) / max(now - begin, 1e-9)
    steps = int(min(left, STEPS - 1 - _PROBES))
    for _ in range(steps):
        if patience.clock() >= end:
            return
        yield _GROWTH ** ((STEPS - 1 - _PROBES) / steps)


def _make_chip(tables: Tables, moving: Any, size: Any) -> _Chip:
    canvas = tables.width_all, tables.height_all
    moves = np.zeros((len(tables.width), 1), np.float32)
    moves[moving] = 1
    scale = tables.wire_scale * (canvas[0] + canvas[1])
    per_cell = np.array(
        [tables.rows / tables.tracks_across, tables.columns / tables.tracks_up]
    )
    shape = (tables.columns, tables.rows)
    return _Chip(
        size=_single(np.stack([tables.width, tables.height], 1) / size)
        * tables.has_area[:, None],
        offset=_single(np.stack([tables.end_x, tables.end_y], 1) / size),
        moves=moves,
        block=tables.end_block,
        net=owners_of(tables.ends_at).astype(np.int32),
        weight=_single(tables.wire_weight * scale),
        tracks=_single(tables.track_weight[:, None] * per_cell),
        aspect=_single(size / size.sum()),
        cells=tuple(_single(np.linspace(0, 1, n + 1)) for n in shape),
        bins=tuple(_single(np.linspace(0, 1, _CELLS * n + 1)) for n in shape),
    )


def _single(values: Any) -> Any:
    return np.asarray(values, np.float32)


def _cover(low: Any, high: Any, lines: Any) -> Any:
    """Length of each interval [K] within each line of cells, [K, lines]."""
    inner_high = jnp.minimum(high[:, None], lines[None, 1:])
    return jax.nn.relu(inner_high - jnp.maximum(low[:, None], lines[None, :-1]))


def _smooth_ends(chip: _Chip, places: Any) -> tuple[Any, Any]:
    """Smooth least and largest coordinate of each net, [N, 2]."""
    ends, nets = places[chip.block] + chip.offset, len(chip.weight)

    def mean(sign: float) -> Any:
        heat = sign * ends / _LENGTH
        most = jax.ops.segment_max(heat, chip.net, nets, indices_are_sorted=True)
        share = jnp.exp(heat - jax.lax.stop_gradient(most)[chip.net])
        sums = jax.ops.segment_sum(
            jnp.concatenate([share * ends, share], 1),
            chip.net,
            nets,
            indices_are_sorted=True,
        )
        return sums[:, :2] / sums[:, 2:]

    return mean(-1.0), mean(1.0)


def _wires(chip: _Chip, places: Any, factors: Any) -> Any:
    """Wirelength, and congestion by the boxes of nets, weighted."""
    low, high = _smooth_ends(chip, places)
    length = (chip.weight * ((high - low) @ chip.aspect)).sum()
    middle, half = (low + high) / 2, jnp.maximum((high - low) / 2, _LENGTH / 2)
    x, y = (
        _cover(middle[:, i] - half[:, i], middle[:, i] + half[:, i], chip.cells[i])
        for i in range(2)
    )
    # A net crosses each column of its box once, somewhere along the box's height.
    across = (chip.tracks[:, :1] * y / (2 * half[:, 1:])).T @ (x * x.shape[1])
    up = (chip.tracks[:, 1:] * y * y.shape[1]).T @ (x / (2 * half[:, :1]))
    use = jnp.stack([across / y.shape[1], up / x.shape[1]])
    fullest = ((use**_POWER).mean() + 1e-12) ** (1 / _POWER)
    return factors[0] * length + factors[2] * fullest


def _energy(chip: _Chip, places: Any) -> Any:
    """Energy of the blocks as charges: 0 if they cover the canvas evenly."""
    low, high = places - chip.size / 2, places + chip.size / 2
    x, y = (_cover(low[:, i], high[:, i], chip.bins[i]) for i in range(2))
    density = (y.T @ x) * (x.shape[1] * y.shape[1])
    waves = fft.dctn(density, norm="ortho")
    squares = [(jnp.arange(n) * jnp.pi) ** 2 for n in density.shape]
    lengths = squares[0][:, None] * chip.aspect[1] ** -2 + squares[1] * (
        chip.aspect[0] ** -2
    )
    lengths = lengths.at[0, 0].set(1.0)
    return (waves.at[0, 0].set(0.0) ** 2 / lengths).sum() / density.size


@jax.jit
def _gradients(chip: _Chip, places: Any, factors: Any) -> tuple[Any, Any]:
    """Gradients [B, 2] of the costs of wires, and of the energy of charges."""
    wires = jax.grad(lambda p: _wires(chip, p, factors))(places)
    charges = jax.grad(lambda p: _energy(chip, p))(places)
    return chip.moves * wires, chip.moves * charges


@jax.jit
def _begin(places: Any, gradients: tuple[Any, Any]) -> Any:
    """The state before the first step.

    Places, places ahead, those of the step before and the gradient there, the momentum,
    the weight of the charges, and the length of a step.
    """
    wires, charges = gradients
    force = _FIRST * jnp.abs(wires).sum() / jnp.maximum(jnp.abs(charges).sum(), 1e-12)
    total = wires + force * charges
    step = _LONGEST / 2 / jnp.maximum(jnp.abs(total).max(), 1e-12)
    return places, places, jnp.zeros_like(places), total, jnp.float32(1), force, step


@jax.jit
def _step(chip: _Chip, state: Any, gradients: tuple[Any, Any], growth: Any) -> Any:
    """A step of Nesterov's method, with the step length of ePlace.

    gradients: those at the places ahead. growth: factor of the weight of the charges.
    """
    places, ahead, ahead_before, before, momentum, force, length = state
    wires, charges = gradients
    total = _conditioned(chip, wires + force * charges, force)
    moved = jnp.sqrt(((ahead - ahead_before) ** 2).sum())
    changed = jnp.sqrt(((total - before) ** 2).sum())
    guess = jnp.where(momentum > 1, moved / jnp.maximum(changed, 1e-12), length)
    most = _LONGEST / jnp.maximum(jnp.abs(total).max(), 1e-12)
    length = jnp.minimum(guess, most)
    new = _inside(chip, ahead - length * total)
    factor = (1 + jnp.sqrt(4 * momentum**2 + 1)) / 2
    new_ahead = _inside(chip, new + (momentum - 1) / factor * (new - places))
    return new, new_ahead, ahead, total, factor, force * growth, length


def _conditioned(chip: _Chip, total: Any, force: Any) -> Any:
    """The gradient over its curvature: nets of the block, and its charge."""
    nets = jnp.zeros(len(chip.size)).at[chip.block].add(chip.weight[chip.net])
    area = chip.size[:, 0] * chip.size[:, 1]
    return total / (nets + force * area + 1e-6)[:, None]


def _inside(chip: _Chip, places: Any) -> Any:
    """Blocks that move pulled onto the canvas."""
    half = jnp.minimum(chip.size, 1.0) / 2
    return jnp.where(chip.moves > 0, jnp.clip(places, half, 1 - half), places)
