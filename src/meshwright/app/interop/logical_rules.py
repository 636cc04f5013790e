"""Logical axis rules as in Flax and MaxText: from names of dims to mesh axes.

Rules are in order of precedence. A rule applies to an array if the array has a dim of that
name that no earlier rule has sharded, and if none of the rule's axes already splits another
dim of the array (`flax.linen.logical_to_mesh_axes`).
"""

from collections.abc import Iterable, Sequence

from meshwright.errors import TacticError, did_you_mean

type Axes = tuple[str, ...]
type Names = tuple[str | None, ...]
type Rules = tuple[tuple[str, Axes], ...]


def read_rules(rules: Iterable[object]) -> Rules:
    """The rules as pairs of a logical name and a tuple of mesh axes.

    Raises `TacticError` if the argument is no list of rules.
    """
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise TacticError(
            f"logical axis rules are {rules!r}; wanted a list of pairs, such as "
            "[('embed', 'data'), ('mlp', ('model', 'seq')), ('kv', None)]"
        )
    return tuple(_read_rule(rule) for rule in rules)


def _read_rule(rule: object) -> tuple[str, Axes]:
    if isinstance(rule, Sequence) and not isinstance(rule, str) and len(rule) == 2:
        name, axes = rule
        if isinstance(axes, str) or axes is None:
            axes = (axes,) if axes else ()
        is_list = isinstance(axes, Sequence)
        if is_list and all(isinstance(each, str) for each in (name, *axes)):
            return name, tuple(axes)
    raise TacticError(
        f"{rule!r} is no logical axis rule; wanted a name with a mesh axis, several or "
        "None, such as ('mlp', ('model', 'seq'))"
    )


def axes_of_names(names: Names, rules: Rules) -> tuple[Axes, ...]:
    """The mesh axes of each dim of an array, by applying the rules to its dims' names."""
    found: dict[int, Axes] = {}
    used: set[str] = set()
    for name, axes in rules:
        if name in names and used.isdisjoint(axes):
            dim = names.index(name)
            if dim not in found:
                found[dim] = axes
                used.update(axes)
    return tuple(found.get(dim, ()) for dim in range(len(names)))


def require_known(path: str, names: Names, rules: Rules) -> None:
    """Raise `TacticError` if an array has a name twice, or a name that no rule has."""
    known = list(dict.fromkeys(name for name, _ in rules))
    for name in filter(None, names):
        if names.count(name) > 1:
            raise TacticError(
                f"two dims of {path} have the logical name {name!r}; give one another name"
            )
        if name not in known:
            raise TacticError(
                f"no rule has the logical axis {name!r} of {path}"
                f"{did_you_mean(name, known)} (there are rules "
                f"for {', '.join(known)}; the rule ({name!r}, None) leaves such dims whole)"
            )
