"""The `pin` tactic that contains all decisions of a workspace, by readable names."""

from collections.abc import Iterator, Mapping

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.sites import Place, all_sites_of
from meshwright.partitioner.structure.workspace import (
    Workspace,
    matches,
    without_indices,
)
from meshwright.partitioner.tactics.pin import Pin
from meshwright.partitioner.tactics.pin_text import show_pin


def pin_all(work: Workspace, start: Workspace, name: str = "") -> Pin:
    """The tactic that turns `start`, a workspace before some decisions, into `work`.

    name: as in `Pin`.

    Inputs come first, then ops in the order of the program. Inputs of equal layers are
    one entry if they are sharded alike, and so are the ops of one line.
    """
    texts = {
        node.index: text
        for node in _decided(work)
        if (text := show_pin(work, node)) != show_pin(start, node)
    }
    return Pin((*_inputs(work, texts), *_ops(work, texts)), name)


def _decided(work: Workspace) -> Iterator[Node]:
    """The nodes with a decision about them or about one of their results."""
    state = work.state
    values = {v for v, _ in (*state.scattered, *state.settled)} | {*state.kept}
    for node in work.graph.nodes:
        if state.axes_of[node.index] or any(value in values for value, _ in node.outs):
            yield node


def _inputs(work: Workspace, texts: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    nodes = zip(work.paths, work.graph.input_nodes, strict=True)
    text_of = {path: texts.get(node.index, "") for path, node in nodes}
    done: set[str] = set()
    for path, text in text_of.items():
        family = without_indices(path)
        if not text or family in done:
            continue
        if {t for p, t in text_of.items() if matches(family, p)} == {text}:
            done.add(family)
            yield family, text
        else:
            yield path, text


def _ops(work: Workspace, texts: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    sites = all_sites_of(work.graph)
    alike: dict[tuple[Place, str], list[Node]] = {}  # in the order of the program
    for node in work.graph.nodes:
        text = texts.get(node.index)
        if text and node.input_position is None:
            alike.setdefault((sites.place_of[node.index][0], text), []).append(node)
    for (_, text), nodes in alike.items():
        for name in sites.names(nodes):
            yield name, text
