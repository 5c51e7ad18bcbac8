"""Rules for database roles, their privileges and their members."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import Role
from spanner_simulator.errors import Code, SpannerError

_ALLOWED: dict[ddl.ObjectKind, tuple[str, ...]] = {
    "TABLE": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "VIEW": ("SELECT",),
    "SCHEMA": ("USAGE",),
    "CHANGE STREAM": ("SELECT",),
    "TABLE FUNCTION": ("EXECUTE",),
    "ROLE": ("MEMBER",),
}


def read_functions(catalogue: Catalogue, stream: str) -> tuple[str, ...]:
    """The names of a change stream's read functions, as queries and GRANT call them."""
    if catalogue.dialect == "GOOGLE_STANDARD_SQL":
        return (f"READ_{stream}",)
    if catalogue.stream(stream).partition_mode == "MUTABLE_KEY_RANGE":
        return (f"read_proto_bytes_{stream}",)
    return (f"read_json_{stream}",)


def create_role(catalogue: Catalogue, statement: ddl.CreateRole) -> None:
    """Make a role without privileges."""
    if statement.name.lower() in catalogue.roles:
        if statement.if_not_exists:
            return
        raise SpannerError(Code.FAILED_PRECONDITION, f"Duplicate name in schema: {statement.name}.")
    if statement.name.lower().startswith("spanner_"):
        raise SpannerError(Code.INVALID_ARGUMENT, f"Role name not valid: {statement.name}.")
    catalogue.roles[statement.name.lower()] = Role(statement.name)


def drop_role(catalogue: Catalogue, statement: ddl.DropRole) -> None:
    """Remove a role, and its membership in others."""
    if statement.if_exists and statement.name.lower() not in catalogue.roles:
        return
    role = catalogue.role(statement.name)
    _check_own(role)
    del catalogue.roles[role.name.lower()]
    for key, other in catalogue.roles.items():
        if role.name.lower() in other.members_of:
            catalogue.roles[key] = replace(other, members_of=other.members_of - {role.name.lower()})


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


def _check_own(role: Role) -> None:
    if role.name.startswith("spanner_") or role.name == "public":
        raise SpannerError(
            Code.FAILED_PRECONDITION, f"Cannot alter or drop the system role {role.name}."
        )


def grant(catalogue: Catalogue, statement: ddl.Grant) -> None:
    """Give privileges or memberships to roles, or take them away."""
    for privilege in statement.privileges:
        if privilege not in _ALLOWED[statement.kind]:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"Privilege {privilege} cannot be granted on {statement.kind}.",
            )
    names = [_grantable(catalogue, statement.kind, name) for name in statement.objects]
    for role in [catalogue.role(name) for name in statement.roles]:
        if statement.kind == "ROLE":
            for name in names:
                _check_no_circle(catalogue, name, role)
            members = frozenset(name.lower() for name in names)
            changed = role.members_of - members if statement.revoke else role.members_of | members
            catalogue.roles[role.name.lower()] = replace(role, members_of=changed)
            continue
        entries = frozenset(
            (statement.kind, name.lower(), privilege)
            for name in names
            for privilege in statement.privileges
        )
        privileges = role.privileges - entries if statement.revoke else role.privileges | entries
        catalogue.roles[role.name.lower()] = replace(role, privileges=privileges)


def _check_no_circle(catalogue: Catalogue, parent: str, role: Role) -> None:
    waiting, seen = [parent.lower()], set[str]()
    while waiting:
        current = waiting.pop()
        if current == role.name.lower():
            raise SpannerError(
                Code.FAILED_PRECONDITION,
                f"Role {role.name} cannot be a member of itself, directly or through other roles.",
            )
        if current not in seen and current in catalogue.roles:
            seen.add(current)
            waiting.extend(catalogue.roles[current].members_of)


def _grantable(catalogue: Catalogue, kind: ddl.ObjectKind, name: str) -> str:
    """The object's name, or NOT_FOUND."""
    match kind:
        case "TABLE":
            if name.lower() in catalogue.views:
                return catalogue.view(name).name
            return catalogue.table(name).name
        case "VIEW":
            return catalogue.view(name).name
        case "SCHEMA":
            if name.lower() not in catalogue.schemas:
                raise SpannerError(Code.NOT_FOUND, f"Schema not found: {name}")
            return catalogue.schemas[name.lower()]
        case "CHANGE STREAM":
            return catalogue.stream(name).name
        case "ROLE":
            return catalogue.role(name).name
        case "TABLE FUNCTION":
            for stream in catalogue.streams.values():
                for function in read_functions(catalogue, stream.name):
                    if function.lower() == name.lower():
                        return function
            raise SpannerError(Code.NOT_FOUND, f"Table function not found: {name}")
        case _:
            assert_never(kind)
