from __future__ import annotations

from spanner_simulator.core.schema.role_text import grants_of, own_roles


def test_grants_are_by_object_and_memberships_come_last(make) -> None:
    roles = make(
        "CREATE TABLE T (a INT64) PRIMARY KEY (a)",
        "CREATE ROLE Boss",
        "CREATE ROLE reader",
        "GRANT ROLE Boss TO ROLE reader",
        "GRANT SELECT, INSERT ON TABLE T TO ROLE reader",
    ).catalogue.roles

    assert [role.name for role in own_roles(roles)] == ["Boss", "reader"]
    assert list(grants_of(roles)) == [
        ("reader", "TABLE", "t", ("INSERT", "SELECT")),
        ("reader", "ROLE", "Boss", ("MEMBER",)),
    ]
