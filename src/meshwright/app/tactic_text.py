"""Parse tactics written as text, in a command or in a recipe of training."""

import ast
from collections.abc import Mapping
from typing import Any

from meshwright.errors import TacticError, did_you_mean
from meshwright.partitioner import tactics as verbs
from meshwright.partitioner.decide import require_tactics
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.overlap.overlap import overlap

VERBS = (
    "FIRST_DIVISIBLE", "REPLICATED", "by_levels", "cut", "data_parallel",
    "expert_parallel", "fsdp", "inference", "megatron", "pin", "recompute",
    "replicate", "sequence_parallel", "shard", "zero",
)  # fmt: skip
"""Names of `partitioner.tactics` that users write."""


def parse_tactics(text: str) -> tuple[Tactic, ...]:
    """Tactics from text such as `data_parallel('batch'), shard({'w': 0}, axis='model')`.

    The text may also be a list in brackets. Only literals and calls of tactics are
    evaluated; no other code can run.
    """
    try:
        tree = ast.parse(f"[{text}]", mode="eval").body
    except SyntaxError as error:
        raise TacticError(f"cannot read tactics {text!r}: {error.msg}") from None
    if not text.strip():
        raise TacticError(
            "tactics are empty; write some, such as \"fsdp('data')\", or []"
        )
    tactics = _evaluate(tree, _namespace())
    assert isinstance(tactics, list)
    if len(tactics) == 1 and isinstance(tactics[0], list):
        tactics = tactics[0]
    for tactic in tactics:
        if not isinstance(tactic, Tactic) and not callable(tactic):
            raise TacticError(f"{tactic!r} in {text!r} is no tactic")
    require_tactics(tactics)
    return tuple(tactics)


def _namespace() -> dict[str, Any]:
    """The names that the text may use: tactics and constants that `meshwright` exports."""
    return {**{name: getattr(verbs, name) for name in VERBS}, "overlap": overlap}


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression of literals, lists, tuples, dicts and calls of tactics.

    names: the tactics and constants that the expression may use.
    """
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [_evaluate(item, names) for item in node.elts]
        case ast.Tuple():
            return tuple(_evaluate(item, names) for item in node.elts)
        case ast.Dict():
            return {
                _evaluate(key, names): _evaluate(value, names)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case ast.Name() | ast.Attribute(value=ast.Name(id="mw")):
            return _lookup(node.id if isinstance(node, ast.Name) else node.attr, names)
        case ast.Call():
            return _call(node, names)
        case _:
            raise TacticError(
                f"{ast.unparse(node)!r} is not allowed in tactics; wanted literals and "
                "calls of tactics"
            )


def _lookup(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        tactics = sorted(known for known in names if known.islower())
        raise TacticError(
            f"no tactic {name!r}{did_you_mean(name, tactics)}; there are "
            f"{', '.join(tactics)}; names of axes stand in quotes: fsdp('data')"
        )
    return names[name]


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    verb = _evaluate(node.func, names)
    args = [_evaluate(arg, names) for arg in node.args]
    keywords: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in keywords:
            raise TacticError(
                f"cannot make {ast.unparse(node)}: each option is written once, by its name"
            )
        keywords[keyword.arg] = _evaluate(keyword.value, names)
    try:
        return verb(*args, **keywords)
    except TypeError as error:
        raise TacticError(f"cannot make {ast.unparse(node)}: {error}") from None
