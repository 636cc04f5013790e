"""Patterns by which users name parameters and data, and a warning of doubtful roles."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.partitioner.structure.input_roles import InputRoles, find_roles
from meshwright.partitioner.structure.workspace import (
    Workspace,
    find_nodes,
    require_patterns,
)

type Patterns = str | Sequence[str] | None
"""One pattern of paths, several, or none."""


@dataclass(frozen=True, slots=True)
class RoleNames:
    """Patterns of the inputs that are parameters, and of those that are data."""

    params: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The arguments of a tactic that give these patterns, after a comma."""
        named = (("inputs", self.inputs), ("params", self.params))
        return "".join(f", {name}={_shown(globs)}" for name, globs in named if globs)

    def find_roles(self, work: Workspace) -> InputRoles:
        """The roles of all inputs; doubtful ones become a warning.

        The names hold for all later tactics, too.
        """
        work.name_roles(_positions(work, self.params), _positions(work, self.inputs))
        roles = find_roles(work)
        if roles.doubts:
            warning = _doubt(work, roles)
            work.warnings += [] if warning in work.warnings else [warning]
        return roles


NO_NAMES = RoleNames()


def role_names(tactic: str, params: Patterns, inputs: Patterns) -> RoleNames:
    """The names that a user gives to a tactic; `TacticError` for what is no pattern."""
    globs = [() if p is None else _several(p) for p in (params, inputs)]
    for each in globs:
        require_patterns(tactic, each)
    return RoleNames(*globs)


def _several(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(patterns) if isinstance(patterns, tuple | list) else (patterns,)  # pyright: ignore[reportReturnType]


def _shown(globs: tuple[str, ...]) -> str:
    return repr(globs[0] if len(globs) == 1 else list(globs))


def _positions(work: Workspace, globs: tuple[str, ...]) -> list[int]:
    nodes = (node for glob in globs for _, node in find_nodes(work, glob))
    return [n.input_position for n in nodes if n.input_position is not None]


def _doubt(work: Workspace, roles: InputRoles) -> str:
    """A warning about the inputs whose roles few points of evidence decide."""
    params = [work.paths[i] for i in roles.doubts if i in roles.params]
    data = [work.paths[i] for i in roles.doubts if i not in roles.params]
    taken = [f"{_few(params)} for weights"] * bool(params)
    taken += [f"{_few(data)} for data"] * bool(data)
    why = "; ".join(
        f"{work.paths[i]}: {', '.join(sorted(e.words for e in evidence))}"
        for i, evidence in [*roles.doubts.items()][:2]
    )
    names = [f"params={_shown(tuple(params[:4]))}"] * bool(params)
    names += [f"inputs={_shown(tuple(data[:4]))}"] * bool(data)
    return (
        f"{' and '.join(taken)}: taken so on weak evidence ({why}); name the roles in the "
        f"first tactic, as here by {', '.join(names)}, or the other way round"
    )


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
    return ", ".join(paths[:4]) + more
