"""Rules for database roles and their privileges."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import SYSTEM_ROLES, Catalogue
from spanner_simulator.core.schema.refusals import invalid, refused
from spanner_simulator.core.schema.schema_objects import Role
from spanner_simulator.errors import Code, SpannerError

_ALLOWED: dict[ddl.ObjectKind, tuple[str, ...]] = {
    "TABLE": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "SCHEMA": ("USAGE",),
    "CHANGE STREAM": ("SELECT",),
    "TABLE FUNCTION": ("EXECUTE",),
}


def create_role(catalogue: Catalogue, statement: ddl.CreateRole) -> None:
    """Make a role without privileges."""
    name = statement.name
    if name.lower() in catalogue.roles:
        if statement.if_not_exists:
            return
        raise refused(f"Duplicate name in schema: {name}.")
    if name.lower().startswith("spanner_"):
        raise invalid(f"Role name not valid: {name}.")
    catalogue.roles[name.lower()] = Role(name)


def drop_role(catalogue: Catalogue, role: Role) -> None:
    """Remove a role that DDL made."""
    if role.name in SYSTEM_ROLES:
        raise refused(f"Cannot alter or drop the system role {role.name}.")
    del catalogue.roles[role.name.lower()]


def forget_lost_objects(catalogue: Catalogue) -> None:
    """Take away the privileges on what has been dropped, lest its successor should have them."""
    for key, role in catalogue.roles.items():
        kept = frozenset(one for one in role.privileges if _exists(catalogue, one[0], one[1]))
        if kept != role.privileges:
            catalogue.roles[key] = replace(role, privileges=kept)


def _exists(catalogue: Catalogue, kind: ddl.ObjectKind, name: str) -> bool:
    try:
        _grantable(catalogue, kind, name)
    except SpannerError:
        return False
    return True


def grant(catalogue: Catalogue, statement: ddl.Grant) -> None:
    """Give privileges to roles, or take them away."""
    for privilege in statement.privileges:
        if privilege not in _ALLOWED[statement.kind]:
            raise invalid(f"Privilege {privilege} cannot be granted on {statement.kind}.")
    names = [_grantable(catalogue, statement.kind, name) for name in statement.objects]
    entries = frozenset(
        (statement.kind, name.lower(), privilege)
        for name in names
        for privilege in statement.privileges
    )
    for role in [catalogue.role(name) for name in statement.roles]:
        privileges = role.privileges - entries if statement.revoke else role.privileges | entries
        catalogue.roles[role.name.lower()] = replace(role, privileges=privileges)


def _grantable(catalogue: Catalogue, kind: ddl.ObjectKind, name: str) -> str:
    """The object's name, or NOT_FOUND."""
    match kind:
        case "TABLE":
            return catalogue.table(name).name
        case "SCHEMA":
            if name.lower() not in catalogue.schemas:
                raise SpannerError(Code.NOT_FOUND, f"Schema not found: {name}")
            return catalogue.schemas[name.lower()]
        case "CHANGE STREAM":
            return catalogue.stream(name).name
        case "TABLE FUNCTION":
            for stream in catalogue.streams.values():
                function = stream.read_function(catalogue.dialect)
                if function.lower() == name.lower():
                    return function
            raise SpannerError(Code.NOT_FOUND, f"Table function not found: {name}")
        case _:
            assert_never(kind)
