"""The report of a redrive: it is made after the commit, so it never fails."""

import json
from types import SimpleNamespace

import pytest

from tidegate.producer.cli.redrive import _report
from tidegate.producer.translation.parked_changes import KeyName, ParkedKey, Selection
from tidegate.schemas.errors import SchemaNotFound, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import frame

KEY = {"type": "record", "name": "Key", "fields": [{"name": "Id", "type": ["null", "long"]}]}


def report(key, schema):
    def schema_of(_schema_id):
        if isinstance(schema, Exception):
            raise schema
        return schema

    left = ParkedKey(
        KeyName("t.Users", key), 1, changes=2, first=OrderKey(5, "t", (0, 0), 0).encode(),
        reason="SchemaError", error="still poison",
    )  # fmt: skip
    chosen = {KeyName("t.Users", b"other"): ParkedKey(KeyName("t.Users", b"other"), 2, changes=3)}
    environment = SimpleNamespace(registry=SimpleNamespace(schema=schema_of))
    return _report(Selection(chosen, [left]), environment, "t-dead-letter", dry_run=False)


@pytest.mark.parametrize(
    ("key", "schema", "shown"),
    [
        (frame(7, b"\x02\x0e"), KEY, '{"Id": 7}'),
        (b'{"Id":7}', KEY, '{"Id":7}'),
        (frame(7, b"\x02\x0e"), SchemaNotFound("no schema"), "0x0000000007020e"),
        (frame(7, b"\x02\x0e"), UnreachableError("no registry"), "0x0000000007020e"),
        (frame(7, b"\x02"), KEY, "0x000000000702"),
        (b"\xff", KEY, "0xff"),
        (b"{\xff", KEY, "0x7bff"),
    ],
)
def test_a_key_that_cannot_be_decoded_does_not_hide_what_was_put_back(key, schema, shown):
    found = report(key, schema)
    assert found.changes == {"t.Users": 3}
    assert [one.key for one in found.left] == [shown]
    assert json.loads(found.as_json())["left"][0]["reason"] == "SchemaError"
