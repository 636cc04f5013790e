"""Parameters, scalars and lists as text, and the inverse of lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_LONGEST = 100
_OPENING, _CLOSING = "([{<", ")]}>"
_HIDDEN = ("reason",)  # plans print it; it is too long for a line of a program


@dataclass(frozen=True, slots=True)
class Opaque:
    """The text of a parameter or constant that was parsed but not interpreted."""

    text: str

    def __str__(self) -> str:
        return self.text


def show_param(value: object) -> str:
    """Short text of a parameter, the same in every run, without addresses or newlines."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | Opaque):
        return str(value)
    if type(value) in (tuple, list, set, frozenset):
        return _show_sequence(value)
    if type(value) is dict:
        items = (f"{show_param(k)}: {show_param(v)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    name = getattr(value, "__name__", "")
    if callable(value) and name:
        return f"<{name.strip('<>')}>"
    text = repr(value)
    plain = len(text) <= _LONGEST and text.isprintable() and " at 0x" not in text
    return text if plain and _is_balanced(text) else f"<{type(value).__name__}>"


def _show_sequence(value: object) -> str:
    assert isinstance(value, tuple | list | set | frozenset)
    parts = [show_param(v) for v in value]
    if isinstance(value, tuple):
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    return f"{{{', '.join(sorted(parts))}}}"


def _is_balanced(text: str) -> bool:
    """Whether `split_top` finds no comma outside of brackets in the text."""
    try:
        return len(split_top(text)) == 1
    except ValueError:
        return False


def split_top(text: str) -> list[str]:
    """The parts between commas that are outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[i - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING and not text.startswith("->", i - 1):
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
        if depth < 0:
            raise ValueError(f"unbalanced brackets in {text!r}")
    if depth or quote:
        raise ValueError(f"unbalanced brackets or quotes in {text!r}")
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def show_params(params: Mapping[str, object]) -> str:
    shown = [(k, v) for k, v in params.items() if v is not None and k not in _HIDDEN]
    return ", ".join(f"{key}={show_param(value)}" for key, value in shown)


def show_scalar(value: object) -> str:
    """A NumPy or Python scalar as Python writes it."""
    item = getattr(value, "item", None)
    return repr(item() if callable(item) else value).replace(" ", "")
