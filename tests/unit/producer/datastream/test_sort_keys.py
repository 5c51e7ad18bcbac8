"""`sort_keys` are held against the metadata, and fill what it lacks."""

import pytest

from tidegate.producer.datastream.errors import SortKeyMismatch
from tidegate.producer.datastream.metadata import metadata_of
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import SourceKind, read_method_of
from tidegate.producer.datastream.sort_keys import completed

HERE = Position("a.avro", 1)
AT_MS = 1_714_996_408_000
METHODS = {
    "mysql": "mysql-cdc-binlog",
    "oracle": "oracle-cdc-logminer",
    "postgresql": "postgresql-cdc",
    "sqlserver": "sqlserver-cdc",
    "salesforce": "salesforce-cdc",
    "spanner": "spanner-cdc",
}
KEYS = {
    "mysql": ([AT_MS, "mysql-bin.000014", 48351],
              {"log_file": "mysql-bin.000014", "log_position": 48351}),
    "oracle": ([AT_MS, 15869116216871, "0x0073c9.000a4e4c.01d0", 67],
               {"scn": 15869116216871, "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 67}),
    "postgresql": ([AT_MS, "16/CB002DB0"], {"lsn": "16/CB002DB0"}),
    "sqlserver": ([AT_MS, "00000025:00000728:0003"], {"lsn": "00000025:00000728:0003"}),
    "salesforce": ([AT_MS], {}),
    "spanner": ([AT_MS, AT_MS * 1_000 + 999, "MTIz", f"{0x11:016x}{0xA:016x}", 1],
                {"commit_timestamp": AT_MS * 1_000 + 999, "tx_id": "MTIz",
                 "record_sequence": f"{0x11:016x}{0xA:016x}", "mod_number": 1}),
}  # fmt: skip


def check(source, keys, fields, *, method="", at_us=AT_MS * 1_000 + 999):
    name = "object_name" if source == "salesforce" else "table"
    metadata = metadata_of(SourceKind(source), {name: "t", **fields}, HERE)
    found = completed(
        None if keys is None else tuple(keys), read_method_of(method or METHODS[source]), metadata,
        source_timestamp_us=at_us, position=HERE,
    )  # fmt: skip
    return metadata, found


@pytest.mark.parametrize("source", KEYS)
def test_keys_that_agree_change_nothing(source):
    keys, fields = KEYS[source]
    metadata, found = check(source, keys, fields)
    assert found is metadata


@pytest.mark.rule("datastream-sort-keys")
@pytest.mark.parametrize("source", KEYS)
def test_what_only_they_have_is_taken_from_them(source):
    keys, fields = KEYS[source]
    _, found = check(source, keys, {})
    assert {name: getattr(found, name) for name in fields} == fields
    _, found = check(source, keys, {n: "" for n, one in fields.items() if isinstance(one, str)})
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.rule("datastream-sort-keys", "datastream-tidegate-sort-keys")
@pytest.mark.parametrize(
    ("source", "place", "other"),
    [
        ("mysql", 1, "mysql-bin.000015"), ("mysql", 1, "other-bin.000014"), ("mysql", 2, 48352),
        ("oracle", 1, 1), ("oracle", 2, "0x0073c9.000a4e4c.01d1"), ("oracle", 3, 68),
        ("spanner", 1, 1), ("spanner", 2, "MTI0"), ("spanner", 3, "0" * 32), ("spanner", 4, 0),
        ("postgresql", 1, "16/CB002DB1"), ("sqlserver", 1, "00000025:00000728:0004"),
    ],
)  # fmt: skip
def test_a_part_that_contradicts_the_metadata_is_refused(source, place, other):
    keys, fields = KEYS[source]
    wrong = [other if n == place else one for n, one in enumerate(keys)]
    with pytest.raises(SortKeyMismatch, match="different values"):
        check(source, wrong, fields)


@pytest.mark.rule("datastream-sort-keys")
@pytest.mark.parametrize("source", KEYS)
def test_they_begin_with_the_sources_time(source):
    keys, fields = KEYS[source]
    with pytest.raises(SortKeyMismatch, match="do not begin with source_timestamp"):
        check(source, [AT_MS + 1, *keys[1:]], fields)
    with pytest.raises(SortKeyMismatch, match="parts"):
        check(source, [], fields)


@pytest.mark.parametrize("source", KEYS)
def test_another_number_of_parts_is_refused(source):
    keys, fields = KEYS[source]
    with pytest.raises(SortKeyMismatch, match="parts"):
        check(source, [*keys, 1], fields)
    if source in ("sqlserver", "salesforce"):
        check(source, keys[:1], fields)
    else:
        with pytest.raises(SortKeyMismatch, match="parts"):
            check(source, keys[:-1], fields)


@pytest.mark.parametrize(("source", "place", "other"), [("mysql", 1, 0), ("mysql", 2, "48351")])
def test_a_part_of_another_type_is_refused(source, place, other):
    keys, fields = KEYS[source]
    wrong = [other if n == place else one for n, one in enumerate(keys)]
    with pytest.raises(SortKeyMismatch, match="another type"):
        check(source, wrong, fields)


@pytest.mark.rule("datastream-sort-keys")
def test_those_of_a_row_read_after_a_rollback_are_compared():
    keys, fields = KEYS["oracle"]
    method = "oracle-supplementation"
    metadata, found = check("oracle", keys, fields, method=method)
    assert found is metadata
    _, found = check("oracle", keys, {}, method=method)
    assert (found.rs_id, found.ssn) == (fields["rs_id"], fields["ssn"])
    with pytest.raises(SortKeyMismatch, match="different values"):
        check("oracle", [*keys[:3], 68], fields, method=method)


@pytest.mark.parametrize(
    "keys", [[AT_MS, 0, "", 0], [0, 0, "", 0], [AT_MS, 0, 0, 0], [AT_MS, 15869116216871, "", 0]]
)
def test_a_row_read_after_a_rollback_may_have_the_placeholders_of_a_backfill(keys):
    """They give no place: they neither contradict one that the metadata have, nor are one."""
    _, fields = KEYS["oracle"]
    for known in (fields, {**fields, "ssn": None}):
        metadata, found = check("oracle", keys, known, method="oracle-supplementation")
        assert found is metadata
    with pytest.raises(SortKeyMismatch):
        check("oracle", keys, fields)


def test_the_first_statement_of_a_record_set_is_no_placeholder():
    (_, scn, rs_id, _), fields = KEYS["oracle"]
    keys, method = [AT_MS, scn, rs_id, 0], "oracle-supplementation"
    _, found = check("oracle", keys, {"rs_id": rs_id}, method=method)
    assert found.ssn == 0
    with pytest.raises(SortKeyMismatch, match="different values of ssn"):
        check("oracle", keys, fields, method=method)


def test_a_row_read_after_a_rollback_has_the_parts_and_the_time_of_a_change():
    method = "oracle-supplementation"
    with pytest.raises(SortKeyMismatch, match="parts"):
        check("oracle", [AT_MS, 0, ""], {}, method=method)
    with pytest.raises(SortKeyMismatch, match="do not begin with source_timestamp"):
        check("oracle", [AT_MS + 1, 0, "", 0], {}, method=method)
    with pytest.raises(SortKeyMismatch, match="different values of scn"):
        check("oracle", [AT_MS, 1, "", 0], {"scn": 2}, method=method)


def test_one_place_may_be_written_in_two_ways():
    check("postgresql", [AT_MS, "16/cb002db0"], {"lsn": "16/CB002DB0"})
    place, fields = KEYS["spanner"]
    check("spanner", place, {**fields, "record_sequence": "11-a"})
    check("oracle", [AT_MS, 1, " 0x0073c9.000a4e4c.01d0 ", 2],
          {"scn": 1, "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 2})  # fmt: skip


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ("mysql", [AT_MS, "", 0]), ("mysql", [AT_MS, 0, 0]), ("oracle", [AT_MS, 0, "", 0]),
        ("postgresql", [1]), ("sqlserver", None),
    ],
)  # fmt: skip
def test_those_of_a_backfill_and_none_are_not_compared(source, keys):
    metadata, found = check(source, keys, {}, method=f"{source}-backfill")
    assert found is metadata
