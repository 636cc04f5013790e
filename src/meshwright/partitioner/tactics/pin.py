"""The `pin` tactic: shardings of inputs and ops exactly as given, without propagation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node, why_not
from meshwright.partitioner.propagate.state import Cause
from meshwright.partitioner.structure.sites import Place, all_sites_of
from meshwright.partitioner.structure.workspace import (
    Workspace,
    find_nodes,
    matches,
    without_indices,
)
from meshwright.partitioner.tactics.pin_text import (
    NodePin,
    read_pin,
    show_pin,
    write_value,
)
from meshwright.partitioner.tactics.tactic import TacticKind, as_code


@dataclass(frozen=True, slots=True, repr=False)
class Pin:
    """Shard inputs and ops exactly as given, and propagate nothing.

    before: y = x @ w, unsharded
    after `{"mlp.py:7 dot_general": "[data, -]"}`: its rows are sharded
    name: text for plans to show instead of the pins, such as the name of the tactic
        that made these decisions.
    """

    pins: tuple[tuple[str, str], ...]
    name: str = field(default="", compare=False)
    axes = None
    kind = TacticKind.PIN
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Shard all nodes as given, then write the decisions about their results."""
        pins = [each for name, text in self.pins for each in _read(work, name, text)]
        cause = Cause("tactic", self.name or "pin")
        for name, node, pin in pins:
            _assign(work, name, node, pin, cause)
        for name, node, pin in pins:
            for number, clauses in pin.values.items():
                if number >= len(node.outs):
                    raise TacticError(
                        f"pin: {name} has {len(node.outs)} results, and no result {number}"
                    )
                for clause in clauses:
                    write_value(work, name, node.outs[number][0], clause)

    def __str__(self) -> str:
        if self.name:
            return self.name
        pins = ", ".join(f"{name!r}: {text!r}" for name, text in self.pins)
        return f"pin({{{pins}}})"

    def __repr__(self) -> str:
        return as_code(replace(self, name=""))


def pin(shardings: Mapping[str, str]) -> Pin:
    """Shard inputs and ops exactly as given, and nothing else: `pin({"x": "[data, -]"})`.

    shardings: from names to texts. A name is a pattern as in `shard`, or a place as in
        `cut`; loops have places as well, such as `model.py:40 scan.carry f32[16,64]`. A
        text has, per dim, the axes that split it, major to minor, or `-` for none. For
        an op there may follow, separated by "; ":
        "sum [model]": axes that split the dims that it sums over;
        "reduce model": the devices along the axis all-reduce their partial sums here;
        "reduce-scatter model 1": they reduce-scatter them on dim 1;
        "scatter model 1": the same, but only if all readers want dim 1 cut;
        "keep [data, -]": the sharding in which the value is kept for all readers;
        "factor 3 [data]": axes that split a factor of the op's rule that no text above
        can name.
        Texts about a value other than the first result begin with "result 1: ".
    Nothing is propagated, so that a plan that is written in this form is rebuilt
    exactly.
    When the tactic is applied, it raises `TacticError` for a name that matches nothing,
    a text that cannot be read, or a split that is not possible.
    """
    if not isinstance(shardings, Mapping):
        raise TacticError(f"pin wants a mapping from names to texts, got {shardings!r}")
    for name, text in shardings.items():
        if not isinstance(text, str):
            raise TacticError(
                f"the sharding of {name!r} is {text!r}; wanted a text such as '[data, -]'"
            )
    return Pin(tuple(shardings.items()))


def _read(work: Workspace, name: str, text: str) -> Iterator[tuple[str, Node, NodePin]]:
    """The nodes that a name selects, each with the decisions in the text."""
    if " " in name:
        found = [(name, node) for node in all_sites_of(work.graph).find(name)]
    else:
        found = find_nodes(work, name)
    for label, node in found:
        yield label, node, read_pin(work, label, node, text)


def _assign(work: Workspace, name: str, node: Node, pin: NodePin, cause: Cause) -> None:
    state = work.state
    for factor, axes in pin.axes.items():
        for axis in axes:
            if state.factor_of[node.index].get(axis) == factor:
                continue
            why = why_not(state, node, axis, factor)
            if why is not None:
                raise TacticError(f"pin: {name} cannot be split along {axis!r}: {why}")
            state.assign(node, axis, factor, cause)
        is_now = state.axes_of[node.index].get(factor, ())
        if is_now[: len(axes)] != axes:
            raise TacticError(
                f"pin: a dim of {name} is split along {', '.join(is_now)} by an earlier "
                f"tactic; wanted {', '.join(axes)}, major to minor"
            )


# -- all decisions of a workspace ---------------------------------------------------------


def pin_all(work: Workspace, start: Workspace, name: str = "") -> Pin:
    """The `pin` tactic that leads from `start`, an earlier workspace, to `work`.

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
