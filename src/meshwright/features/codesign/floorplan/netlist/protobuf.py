"""The text protobuf of netlists: nodes with a name, inputs and attributes, in order.

Attributes keep their text, such as `f: 0.035`, so that what is written equals what was
read.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import FloorplanError

_BLANK = r"(?:\s|#[^\n]*)*"
_TEXT = r'"((?:[^"\\\n]|\\.)*)"'
_VALUE = r'\w+\s*:\s*(?:"(?:[^"\\\n]|\\.)*"|[^\s{}"#]+)'
_ITEM = re.compile(
    rf"{_BLANK}(?:"
    r"(?P<open>node\s*:?\s*\{)|"
    rf"name\s*:\s*(?P<name>{_TEXT})|"
    rf"input\s*:\s*(?P<input>{_TEXT})|"
    rf"attr\s*:?\s*\{{\s*key\s*:\s*{_TEXT}\s*value\s*:?\s*\{{\s*(?P<value>{_VALUE})"
    r"\s*\}\s*\}|"
    r"(?P<close>\})|(?P<end>\Z))"
)
_NAME, _INPUT, _KEY = 3, 5, 6
"""Groups of `_ITEM` with a text inside of its quotes."""


@dataclass(frozen=True, slots=True)
class NetlistNode:
    """One node of the file.

    inputs: names of the nodes that this one drives; the format calls its sinks so.
    attributes: text of each attribute's value by key, such as `placeholder: "PORT"`.
    line: line of the file at which the node begins.
    """

    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, str]
    line: int

    def text(self, key: str) -> str | None:
        """The value of an attribute without its quotes; `None` if there is none."""
        value = self.attributes.get(key)
        return None if value is None else value.partition(":")[2].strip().strip('"')


def read_nodes(path: Path) -> list[NetlistNode]:
    """The nodes of a netlist file, which may be compressed by gzip."""
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        text = raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise FloorplanError(f"cannot read a netlist from {path}: {why}") from None
    except UnicodeDecodeError as fault:
        raise FloorplanError(
            f"{path} is no text (byte {fault.start}); wanted a netlist as text protobuf"
        ) from None
    return parse_nodes(text, str(path))


def parse_nodes(text: str, source: str) -> list[NetlistNode]:
    """The nodes of a netlist's text; `source` is its name in messages."""
    nodes: list[NetlistNode] = []
    name, inputs, attributes = "", list[str](), dict[str, str]()
    is_open, line, position, counted = False, 1, 0, 0
    for match in _ITEM.finditer(text):
        kind = match.lastgroup
        if match.start() != position or is_open == (kind in ("open", "end")):
            break
        position = match.end()
        if kind == "input":
            inputs.append(match[_INPUT])
        elif kind == "value":
            attributes[match[_KEY]] = match["value"]
        elif kind == "name":
            name = match[_NAME]
        elif kind == "open":
            name, inputs, attributes, is_open = "", [], {}, True
            line += text.count("\n", counted, match.start("open"))
            counted = match.start("open")
        elif kind == "close":
            if not name:
                raise FloorplanError(f"line {line} of {source}: a node without a name")
            nodes.append(NetlistNode(name, tuple(inputs), attributes, line))
            is_open = False
        else:
            return nodes
    position += len(text) - position - len(text[position:].lstrip())
    at = text.count("\n", 0, position) + 1
    where = f"in node {name!r}, which begins at line {line}" if is_open else "after"
    rest = text[position : position + 40].split("\n")[0]
    raise FloorplanError(
        f"{source} cannot be read from line {at} on ({rest!r}, {where}); wanted "
        'nodes such as node { name: "A" input: "B" attr { key: "x" value { f: 1 } } }'
    )


def write_nodes(nodes: Iterable[NetlistNode]) -> str:
    """The text of nodes, in the layout of the published netlists."""
    parts: list[str] = []
    for node in nodes:
        parts.append(f'node {{\n  name: "{node.name}"\n')
        parts.extend(f'  input: "{name}"\n' for name in node.inputs)
        parts.extend(
            f'  attr {{\n    key: "{key}"\n    value {{\n      {value}\n    }}\n  }}\n'
            for key, value in node.attributes.items()
        )
        parts.append("}\n")
    return "".join(parts)
