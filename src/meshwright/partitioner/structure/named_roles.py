"""Roles that the user gives to inputs, by arguments `params=` and `inputs=` of tactics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamedRoles:
    """Positions of the inputs that the user calls parameters, or data."""

    params: frozenset[int] = frozenset()
    inputs: frozenset[int] = frozenset()


UNNAMED = NamedRoles()
