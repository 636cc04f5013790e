"""The load of a partition: seconds of each chip and link, and bytes of each chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meshwright.features.chips.graph.chip_graph import ChipGraph
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.search.arrays import Bools, Floats, Ints, starts_of
from meshwright.search.compiled import compiled


@dataclass(frozen=True, slots=True, eq=False)
class ChipLoad:
    """The work of each chip and link of a module for one input, and the memory.

    chip_s: seconds of computation of each chip, [C].
    link_s: seconds of the link behind each chip but the last, [C - 1].
    memory_bytes: bytes that each chip holds, [C].
    fits: whether every chip's memory suffices.
    """

    chip_s: Floats
    link_s: Floats
    memory_bytes: Ints
    fits: bool

    @property
    def bottleneck_s(self) -> float:
        """Seconds of the busiest chip or link: the time between two results."""
        return float(max(self.chip_s.max(), self.link_s.max(initial=0.0)))

    @property
    def cost(self) -> float:
        """The bottleneck in seconds; infinite if a chip's memory does not suffice."""
        return self.bottleneck_s if self.fits else np.inf


class ReadColumns(NamedTuple):
    """A graph as flat arrays for compiled loops, with values sorted by producer.

    first: first value of each op, [N + 1].
    reader_at, readers: ops that read each value, by offset, [V + 1].
    freed_at, freed: values whose last reader is each op, by offset, [N + 1]. A value
        that no op reads is freed by its producer.
    """

    seconds: Floats
    first: Ints
    value_bytes: Ints
    reader_at: Ints
    readers: Ints
    freed_at: Ints
    freed: Ints
    weight_bytes: Ints
    weight_reads: Ints


def read_columns(graph: ChipGraph) -> ReadColumns:
    """The arrays of a graph for compiled loops."""
    order = np.argsort(graph.producers, kind="stable")
    rank = np.argsort(order)
    values = rank[graph.reads[:, 0]]
    by_value = np.lexsort((graph.reads[:, 1], values))
    readers = graph.reads[by_value, 1]
    num_values, num_ops = len(order), graph.num_ops
    last = graph.producers[order].copy()
    np.maximum.at(last, values, graph.reads[:, 1])
    return ReadColumns(
        graph.seconds,
        starts_of(np.bincount(graph.producers, minlength=num_ops)),
        graph.value_bytes[order],
        starts_of(np.bincount(values, minlength=num_values)),
        readers,
        starts_of(np.bincount(last, minlength=num_ops)),
        np.argsort(last, kind="stable"),
        graph.weight_bytes,
        graph.weight_reads,
    )


def load_of(columns: ReadColumns, module: ChipModule, chips: Ints) -> ChipLoad:
    """The load of a partition: seconds of each chip and link, and bytes of each chip.

    A chip holds three kinds of arrays: the weights that its ops read; the values that
    it exchanges with other chips, for the whole time, since they are sent and received
    during the computation; and its other values while they are live.
    """
    chip_s = np.bincount(chips, columns.seconds, module.num_chips)
    sent = np.zeros(module.num_chips)
    messages = np.zeros(module.num_chips)
    memory = np.zeros(module.num_chips, np.int64)
    _add_weights(columns, chips, memory)
    stays = _add_traffic(columns, chips, sent, messages, memory)
    _add_live(columns, chips, stays, memory)
    link_s = sent / module.link_bytes_per_s + messages * module.latency_s
    fits = bool(memory.max() <= module.memory_bytes)
    return ChipLoad(chip_s, link_s[:-1], memory, fits)


@compiled
def _add_weights(c: ReadColumns, chips: Ints, memory: Ints) -> None:
    """Add the weights that each chip's ops read to its memory, each weight once."""
    seen = np.full(len(memory), -1, np.int64)
    for e in range(len(c.weight_reads)):
        weight, chip = c.weight_reads[e, 0], chips[c.weight_reads[e, 1]]
        if seen[chip] != weight:  # sorted by weight
            seen[chip] = weight
            memory[chip] += c.weight_bytes[weight]


@compiled
def _add_traffic(
    c: ReadColumns, chips: Ints, sent: Floats, messages: Floats, memory: Ints
) -> Bools:
    """Add the values that are sent over links, and the memory that they take.

    Returns which values stay on the chip that made them, [V].
    """
    stays = np.ones(len(c.value_bytes), np.bool_)
    seen = np.full(len(memory), -1, np.int64)
    for u in range(len(c.seconds)):
        home = chips[u]
        for v in range(c.first[u], c.first[u + 1]):
            seen[home] = v
            far = home
            for e in range(c.reader_at[v], c.reader_at[v + 1]):
                chip = chips[c.readers[e]]
                far = max(far, chip)
                if seen[chip] != v:
                    seen[chip] = v
                    memory[chip] += c.value_bytes[v]
            if far > home:
                stays[v] = False
                memory[home] += c.value_bytes[v]
            for link in range(home, far):
                sent[link] += c.value_bytes[v]
                messages[link] += 1
    return stays


@compiled
def _add_live(c: ReadColumns, chips: Ints, stays: Bools, memory: Ints) -> None:
    """Add to each chip's memory the peak of the values that never leave it.

    Ops run in the graph's order. stays: whether each value stays on its chip.
    """
    live = np.zeros(len(memory), np.int64)
    peak = np.zeros(len(memory), np.int64)
    for u in range(len(c.seconds)):
        chip = chips[u]
        for v in range(c.first[u], c.first[u + 1]):
            if stays[v]:
                live[chip] += c.value_bytes[v]
        peak[chip] = max(peak[chip], live[chip])
        for i in range(c.freed_at[u], c.freed_at[u + 1]):
            if stays[c.freed[i]]:
                live[chip] -= c.value_bytes[c.freed[i]]
    memory += peak
