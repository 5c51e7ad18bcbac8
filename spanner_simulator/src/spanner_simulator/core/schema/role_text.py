"""What there is to print of roles, in either dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from spanner_simulator.core.schema.schema_objects import Role
from spanner_simulator.core.schema.statements import ObjectKind


def own_roles(roles: Mapping[str, Role]) -> list[Role]:
    """The roles that DDL made, not those that every database has."""
    return [
        role
        for role in roles.values()
        if role.name != "public" and not role.name.startswith("spanner_")
    ]


def grants_of(roles: Mapping[str, Role]) -> Iterator[tuple[str, ObjectKind, str, tuple[str, ...]]]:
    """Role, kind, object and privileges of each grant; memberships last."""
    for role in roles.values():
        by_object = groupby(sorted(role.privileges), key=lambda entry: entry[:2])
        for (kind, name), entries in by_object:
            yield role.name, kind, name, tuple(privilege for _, _, privilege in entries)
    for role in roles.values():
        for parent in sorted(role.members_of):
            yield role.name, "ROLE", roles[parent].name if parent in roles else parent, ("MEMBER",)
