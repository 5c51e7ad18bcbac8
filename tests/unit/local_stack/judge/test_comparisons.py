"""How the judge reads tables, logs and values, and compares them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from google.cloud.spanner_v1 import TypeCode
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.judge.logged_source import LoggedSource
from tidegate.local_stack.judge.changelog import ChangelogFigures, compare_changelog, examples
from tidegate.local_stack.judge.cuts import compare_cuts, table_difference
from tidegate.local_stack.judge.delta import (
    ChangelogRow,
    ChangelogTable,
    DeltaReader,
    ManifestTable,
    ReleaseManifest,
    read_delta,
    table_rows,
)
from tidegate.local_stack.judge.log import (
    LoggedChange,
    LoggedTransaction,
    Place,
    fetch_commit_log,
    origin_number,
    parse_commit_log,
    record_sequence_numbers,
)
from tidegate.local_stack.judge.source import (
    FirstRows,
    SourceTable,
    _column,
    first_transactions,
    is_of_backfill,
    places_in_changelogs,
)
from tidegate.local_stack.judge.values import canonical, canonical_json, rfc3339_us

TYPES = {"Id": pa.string(), "N": pa.int64(), "M": pa.int64()}


def place(us: int, *, sequence: int = 0, mod: int = 0, transaction: str = "t") -> Place:
    return Place(us, transaction, (0, sequence), mod)


def logged(at: Place, mod_type: str, new: dict[str, Any], old: dict[str, Any]) -> LoggedTransaction:
    change = LoggedChange("t", at, mod_type, {"Id": "a"}, new, old)
    return LoggedTransaction(
        at.commit_timestamp_us, at.server_transaction_id, "", frozenset({"p"}), (change,)
    )


def row(at: Place, mod_type: str = "DELETE", *, ordinal: int = 0, **changed: Any) -> ChangelogRow:
    values: dict[str, Any] = {
        "table": "t",
        "release": 0,
        "ordinal": ordinal,
        "place": at,
        "mod_type": mod_type,
        "keys": {"Id": "a"},
        "new_values": None,
        "old_values": {"Id": "a", "N": 1, "M": None},
        "new_columns": None,
        "old_columns": None,
        "tag": "",
        "records_in_transaction": 1,
        "partitions_in_transaction": 1,
        "origin": origin_number("p"),
        "source_place": at,
        "file": "f",
        "row_in_file": ordinal,
    }
    return ChangelogRow(**(values | changed))


def judged(
    transactions: list[LoggedTransaction], rows: list[ChangelogRow], *, through_us: int = 100
) -> ChangelogFigures:
    return compare_changelog(
        transactions,
        changelogs=[ChangelogTable("t", tuple(rows), TYPES)],
        manifests=[ReleaseManifest(0, 0, through_us, len(rows), {})],
    )


OLD = {"N": "1", "M": None}


def test_a_deleted_row_is_its_old_values():
    figures = judged([logged(place(5), "DELETE", {}, OLD)], [row(place(5))])
    assert figures.examples == ()
    assert (figures.changes_committed, figures.changes_in_changelog) == (1, 1)


@pytest.mark.parametrize(
    ("new", "new_columns", "right"),
    [
        ({"Id": "a", "N": 2, "M": None}, ("Id", "N"), True),
        ({"Id": "a", "N": 2, "M": None}, ("Id", "N", "M"), False),
        ({"Id": "a", "N": 2, "M": None}, None, False),
        ({"Id": "a", "N": None, "M": None}, ("Id", "N"), False),
        ({"Id": "a", "N": 2, "M": None}, ("Id",), False),
        (None, None, False),
    ],
)
def test_absent_is_not_null_in_an_update_and_is_in_an_insert(
    new: Any, new_columns: Any, right: bool
):
    update = logged(place(5), "UPDATE", {"N": "2"}, {"N": "1"})
    columns = {"new_columns": new_columns, "old_columns": ("Id", "N")}
    changelog_row = row(place(5), "UPDATE", new_values=new, **columns)
    assert judged([update], [changelog_row]).unlike_source == (0 if right else 1)
    insert = logged(place(5), "INSERT", {"N": "2"}, {})
    changelog_row = row(
        place(5), "INSERT", new_values={"Id": "a", "N": 2, "M": None}, old_values=None
    )
    assert judged([insert], [changelog_row]).unlike_source == 0


def test_order_is_by_numbers_and_by_every_part():
    places = [
        place(5, sequence=9),
        place(5, sequence=10),
        place(5, sequence=10, mod=1),
        place(5, transaction="u"),
        place(6),
    ]
    rows = [row(at, ordinal=ordinal) for ordinal, at in enumerate(places)]
    log = [logged(at, "DELETE", {}, OLD) for at in places]

    assert judged(log, rows).out_of_order == 0
    for first in range(len(places) - 1):
        swapped = list(places)
        swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
        rows = [row(at, ordinal=ordinal) for ordinal, at in enumerate(swapped)]
        # Once by ordinal, once by the rows' order in their file.
        assert judged(log, rows).out_of_order == 2


def test_the_bounds_of_a_release_are_open_below_and_closed_above():
    log = [logged(place(us), "DELETE", {}, OLD) for us in (0, 1, 100, 101)]
    for us, outside in ((0, 1), (1, 0), (100, 0), (101, 1)):
        assert judged(log, [row(place(us))]).outside_release == outside


def test_examples_are_few_and_name_the_fault():
    assert examples("lost", (str(n) for n in range(100))) == [f"lost: {n}" for n in range(5)]
    assert examples("lost", ["x"]) == ["lost: x"]


SOURCE = {"Id": ("a", "b"), "N": (1, None)}


NO_ROWS = {"Id": (), "N": ()}


@pytest.mark.parametrize(
    ("mirror", "source", "says"),
    [
        ({"Id": ("a", "b"), "N": (1, None)}, SOURCE, ""),
        ({"N": (None, 1), "Id": ("b", "a")}, SOURCE, ""),
        ({}, SOURCE, "has no row"),
        (NO_ROWS, SOURCE, "has no row"),
        ({"Id": ("a",), "N": (1,)}, SOURCE, "1 rows absent"),
        ({"Id": ("a", "b", "c"), "N": (1, None, 2)}, SOURCE, "1 too many"),
        ({"Id": ("a", "b"), "N": (1, 0)}, SOURCE, "1 different"),
        ({"Id": ("a", "a"), "N": (1, 1)}, SOURCE, "2 rows for 1 keys"),
        ({"Id": ("a", "b")}, SOURCE, "has columns"),
        ({"Id": ("a", "b"), "N": (1, None), "M": (1, 1)}, SOURCE, "has columns"),
        ({}, NO_ROWS, ""),
        (SOURCE, NO_ROWS, "2 too many"),
    ],
)
def test_a_difference_is_named(mirror: Any, source: Any, says: str):
    difference = table_difference("t", mirror=mirror, source=source, key=["Id"])
    assert says in difference
    assert bool(difference) == bool(says)


class Bank:
    """Two tables of one row that counts the seconds; the mirrors' version is their release."""

    def tables(self):
        return ["a", "b"]

    mirror_tables = tables

    def primary_key(self, table: str):
        return ["Id"]

    def read(self, table: str, *, at_us: int | None):
        return {"Id": ("x",), "N": (30 if at_us is None else at_us,)}

    def mirror(self, table: str, *, version: int | None = None):
        return {"Id": ("x",), "N": (30 if version is None else (version + 1) * 10,)}


def compared(*cuts: tuple[int, ...]):
    """Releases that end at 10, 20, 30; each with the release that each mirror stands at."""
    manifests = [
        ReleaseManifest(
            n, n * 10, n * 10 + 10, 1,
            {t: ManifestTable("c", 0, "m", at, at) for t, at in zip("ab", cut, strict=False)},
        )
        for n, cut in enumerate(cuts)
    ]  # fmt: skip
    return compare_cuts(manifests, mirrors=Bank(), source=Bank(), rule=lambda *_: [])


def test_mirrors_of_an_older_release_are_compared_with_the_source_at_its_end():
    figures = compared((0, 0), (0, 0), (2, 2))
    assert (figures.releases, figures.cuts, figures.unlike_source, figures.behind_us_most) == (
        3,
        2,
        0,
        10,
    )
    assert figures.mirror_equals_source


@pytest.mark.parametrize(
    ("cut", "says"),
    [((0, 1), "stand at releases"), ((2, 2), "stand at release 2"), ((1,), "b has no row")],
)
def test_mirrors_that_are_no_cut_of_a_release_are_named(cut: tuple[int, ...], says: str):
    figures = compared((0, 0), cut)
    assert figures.unlike_source == 1
    assert any(says in example for example in figures.examples)


def manifest(release: int) -> str:
    entry = {
        "changelog": {"path": "changelog/t", "version": None, "rows": 0},
        "mirror": {"path": "mirror/t", "version": 4},
    }
    content = {
        "release": release,
        "after_us": 1,
        "through_us": 2,
        "rows": 0,
        "tables": {"t": entry},
    }
    return json.dumps(content)


def test_an_empty_folder_has_nothing(tmp_path: Path):
    reader = DeltaReader(tmp_path)
    assert reader.manifests() == []
    assert reader.changelog_tables() == reader.mirror_tables() == []
    assert reader.late_rows() == 0


def test_a_mirror_is_read_as_it_was_at_a_version(tmp_path: Path):
    mirrors = tmp_path / "mirror"
    for balance in (1, 2):
        rows = pa.Table.from_pylist([{"Id": "a", "Balance": balance}])
        write_deltalake(str(mirrors / "t"), rows, mode="overwrite")
    (mirrors / "no table").mkdir()
    reader = DeltaReader(tmp_path)
    assert reader.mirror_tables() == ["t"]
    assert reader.mirror("t", version=0)["Balance"] == (1,)
    assert reader.mirror("t")["Balance"] == (2,)
    write_deltalake(str(mirrors / "empty"), pa.table({"Id": pa.array([], pa.string())}))
    assert reader.mirror("empty").get("Id", ()) == ()
    # Files of different schemas are one table.
    more = str(mirrors / "more")
    write_deltalake(more, pa.table({"Id": ["a"]}))
    write_deltalake(more, pa.table({"Id": ["b"], "New": [1]}), mode="append", schema_mode="merge")
    mirror = reader.mirror("more")
    assert dict(zip(mirror["Id"], mirror["New"], strict=True)) == {"a": None, "b": 1}
    # Its files alone do not describe this one.
    rows = pa.table({"Id": ["a"], "Part": [1]})
    write_deltalake(str(mirrors / "parts"), rows, partition_by=["Part"])
    with pytest.raises(ValueError, match="partition columns"):
        reader.mirror("parts")


def test_manifests_come_by_number(tmp_path: Path):
    folder = tmp_path / "_releases"
    folder.mkdir()
    for name, release in (("b.json", 9), ("a.json", 10)):
        (folder / name).write_text(manifest(release))
    (folder / "c.json.tmp").write_text("not yet a manifest")
    first, second = DeltaReader(tmp_path).manifests()
    assert (first.number, second.number) == (9, 10)
    assert first.tables["t"].changelog_version is None
    assert first.tables["t"].mirror_version == 4


def test_files_with_arrows_view_types_are_read_with_others(tmp_path: Path):
    """delta-rs's MERGE writes them, and Spark does not."""
    row = {"Id": "a", "Tags": ["b"], "Picture": b"c", "More": {"Name": "d"}}
    folder = tmp_path / "t"
    for text, raw in ((pa.string(), pa.binary()), (pa.string_view(), pa.binary_view())):
        more = pa.struct({"Name": text})
        kinds = {"Id": text, "Tags": pa.list_(text), "Picture": raw, "More": more}
        before = set(folder.glob("*.parquet"))
        write_deltalake(str(folder), pa.Table.from_pylist([row]), mode="append")
        (file,) = set(folder.glob("*.parquet")) - before
        pq.write_table(pa.Table.from_pylist([row], schema=pa.schema(list(kinds.items()))), file)
    assert read_delta(folder).to_pylist() == [row, row]


def test_reading_leaves_no_thread_that_aborts_the_interpreter(tmp_path: Path):
    write_deltalake(str(tmp_path / "mirror" / "t"), pa.table({"Id": ["a"]}))
    program = (
        "import pathlib, sys; from tidegate.local_stack.judge.delta import DeltaReader; "
        "print(DeltaReader(pathlib.Path(sys.argv[1])).mirror('t'))"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "{'Id': ('a',)}")


def test_commit_times_are_by_version(tmp_path: Path):
    before_ms = int(datetime.now(UTC).timestamp() * 1_000)
    for _ in range(2):
        write_deltalake(str(tmp_path / "changelog" / "t"), pa.table({"Id": ["a"]}), mode="append")
    times = DeltaReader(tmp_path).commit_times_ms("t")
    assert sorted(times) == [0, 1]
    assert before_ms <= times[0] <= times[1]


def test_columns_of_every_kind_become_canonical():
    instant = datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)
    table = pa.table(
        {
            "number": pa.array([1, None]),
            "text": pa.array(["a", None]),
            "instant": pa.array([instant, None], pa.timestamp("us", tz="UTC")),
            "nanos": pa.array([1_000_005_000, None], pa.timestamp("ns")),
            "float": pa.array([float("nan"), 1.5]),
            "money": pa.array([Decimal("1.5"), None], pa.decimal128(38, 9)),
            "day": pa.array([date(2024, 1, 2), None]),
            "bytes": pa.array([b"x", None]),
            "list": pa.array([[1, None], None]),
        }
    )

    assert table_rows(table) == {
        "number": (1, None),
        "text": ("a", None),
        "instant": (1_000_005, None),
        "nanos": (1_000_005, None),
        "float": ("NaN", 1.5),
        "money": (Decimal("1.5"), None),
        "day": (date(2024, 1, 2), None),
        "bytes": (b"x", None),
        "list": ((1, None), None),
    }


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("7", pa.int64(), 7),
        ("abc", pa.string(), "abc"),
        (True, pa.bool_(), True),
        (1.5, pa.float64(), 1.5),
        ("NaN", pa.float64(), "NaN"),
        ("-Infinity", pa.float64(), float("-inf")),
        ("aGk=", pa.binary(), b"hi"),
        ("1.5", pa.decimal128(38, 9), Decimal("1.500000000")),
        ("2024-02-29", pa.date32(), date(2024, 2, 29)),
        ("1970-01-01T00:00:01.5Z", pa.timestamp("us", tz="UTC"), 1_500_000),
        (["1", None], pa.list_(pa.int64()), (1, None)),
        (None, pa.int64(), None),
    ],
)
def test_spanner_json_becomes_what_arrow_gives(text: Any, kind: pa.DataType, expected: Any):
    assert canonical_json(text, kind) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000),  # noqa: DTZ001 - Arrow gives such ones too
        (float("nan"), "NaN"),
        ([1, [None]], (1, (None,))),
        (date(2024, 1, 1), date(2024, 1, 1)),
        (None, None),
    ],
)
def test_objects_become_canonical(value: Any, expected: Any):
    assert canonical(value) == expected


def test_an_object_of_no_known_kind_is_refused():
    with pytest.raises(TypeError, match="object"):
        canonical(object())


@given(st.datetimes(datetime(1700, 1, 1), datetime(2300, 1, 1)))  # noqa: DTZ001 - a range
def test_timestamps_survive_their_text(instant: datetime):
    aware = instant.replace(tzinfo=UTC)
    text = aware.isoformat()
    assert rfc3339_us(text) == canonical(aware)
    assert rfc3339_us(text.replace("+00:00", "Z")) == canonical(aware)


def test_digits_below_a_microsecond_are_cut_off():
    assert rfc3339_us("1970-01-01T00:00:00.123456999Z") == 123_456


CHANGE = {
    "table": "accounts",
    "mod_type": "DELETE",
    "keys": {"AccountId": "a"},
    "new_values": None,
    "old_values": {"Balance": "3"},
    "record_sequence": "00000010",
    "mod_number": 2,
}
ENTRY = {
    "commit_timestamp_us": 5,
    "server_transaction_id": "t",
    "tag": "x",
    "stream_partition_tokens": ["p", "q"],
    "changes": [CHANGE],
}


def test_a_line_becomes_a_transaction():
    (transaction,) = parse_commit_log([json.dumps(ENTRY), "", "\n"])
    assert transaction.stream_partition_tokens == {"p", "q"}
    (change,) = transaction.changes
    assert change.place == Place(5, "t", (0, 10), 2)
    assert (change.new_values, change.old_values) == ({}, {"Balance": "3"})
    # A transaction that changed nothing watched is left out.
    assert parse_commit_log([json.dumps(ENTRY | {"changes": []})]) == []


def test_forgotten_changes_have_places_that_no_row_can_have():
    forgotten = CHANGE | {"record_sequence": None, "mod_number": None}
    (transaction,) = parse_commit_log([json.dumps(ENTRY | {"changes": [forgotten, forgotten]})])
    first, second = transaction.changes
    assert first.place != second.place
    assert first.place.record_sequence == second.place.record_sequence == (-1, -1)


def test_places_compare_by_number_and_not_by_text():
    assert record_sequence_numbers("00000009") < record_sequence_numbers("00000010")
    assert record_sequence_numbers("963d1af435fb3e79-0000000f") == (0x963D1AF435FB3E79, 15)
    assert Place(1, "b", (0, 0), 0) < Place(2, "a", (0, 0), 0)
    assert Place(1, "a", (0, 2), 0) < Place(1, "a", (0, 10), 0) < Place(1, "a", (0, 10), 1)


def test_the_log_is_fetched_over_http():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = (json.dumps(ENTRY) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        transactions_read = fetch_commit_log(
            f"127.0.0.1:{server.server_port}", database="a/b", stream="s"
        )

    assert len(transactions_read) == 1
    assert asked == ["/commit-log?database=a%2Fb&stream=s&from=0"]


AT_US = 70
READ = ("tidegate-backfill/read/0/12/abc", "tidegate-backfill/read/11/12/abc")
FIRST = FirstRows(AT_US, ("t", "empty"), frozenset({*READ, "tidegate-backfill/done/1/12"}))


class Source:
    def tables(self) -> tuple[str, ...]:
        return ("t", "empty")

    def primary_key(self, table: str) -> tuple[str, ...]:
        return ("K",)

    def read(self, table: str, *, at_us: int | None) -> Any:
        assert at_us == AT_US
        return {"A": ("a", None), "K": (1, 2)} if table == "t" else {"A": (), "K": ()}


def row_of_first_rows(
    key: int, sequence: int, *, transaction: str = "spanner-backfill-11", **more: Any
) -> Any:
    place = Place(AT_US, transaction, (0, sequence), 0)
    return SimpleNamespace(**{"place": place, "tag": "spanner-backfill", "keys": {"K": key}} | more)


def transactions(*rows: Any) -> Any:
    places = places_in_changelogs(FIRST, Source(), [ChangelogTable("t", rows, {})])
    return first_transactions(FIRST, Source(), places)


def test_each_row_of_the_source_stands_where_the_changelog_has_it_first():
    (transaction,) = transactions(
        row_of_first_rows(2, 1), row_of_first_rows(1, 3), row_of_first_rows(2, 4)
    )
    assert (transaction.server_transaction_id, transaction.tag) == (
        "spanner-backfill-11",
        "spanner-backfill",
    )
    assert transaction.stream_partition_tokens == {READ[1]}
    places = [(change.keys["K"], change.place.record_sequence[1]) for change in transaction.changes]
    assert places == [(1, 3), (2, 1)]
    assert [change.new_values for change in transaction.changes] == [{"A": "a"}, {"A": None}]
    assert {change.mod_type for change in transaction.changes} == {"INSERT"}


def test_a_row_that_the_changelog_lacks_has_a_place_that_none_has():
    placed = transactions(
        row_of_first_rows(2, 1),
        row_of_first_rows(1, 1, tag="another"),
        row_of_first_rows(1, 1, place=Place(71, "x", (0, 0), 0)),
    )
    assert [transaction.server_transaction_id for transaction in placed] == [
        "",
        "spanner-backfill-11",
    ]
    assert placed[0].changes[0].place.record_sequence == (-1, -1)


def test_tokens_of_a_backfill_are_known_by_their_begin():
    assert [is_of_backfill(token) for token in (READ[0], "abc")] == [True, False]


def committed(us: int, mod_type: str, new: dict[str, Any], table: str = "t") -> LoggedTransaction:
    change = LoggedChange(table, place(us), mod_type, {"Id": "a"}, new, {})
    return LoggedTransaction(us, "t", "", frozenset(), (change,))


def test_a_source_is_what_the_log_leaves_of_it_at_a_time():
    log = [
        committed(5, "INSERT", {"N": "1"}), committed(6, "INSERT", {"N": "1"}, table="other"),
        committed(7, "UPDATE", {"M": "2"}), committed(9, "DELETE", {}),
    ]  # fmt: skip
    layout = {"t": SourceTable(("Id", "N", "M"), ("Id",))}
    source = LoggedSource(reversed(log), layout, {"t": TYPES})
    assert (source.tables(), source.primary_key("t")) == (("t",), ("Id",))
    for at_us, row in ((7, ("a", 1, 2)), (5, ("a", 1, None)), (8, ("a", 1, 2)), (4, None)):
        columns = source.read("t", at_us=at_us)
        assert list(zip(*columns.values(), strict=True)) == ([row] if row else [])
    assert source.read("t", at_us=None) == {"Id": (), "N": (), "M": ()}
    raw = LoggedSource(log, layout, {}).read("t", at_us=7)
    assert raw == {"Id": ("a",), "N": ("1",), "M": ("2",)}


def text(value: str | None) -> Value:
    return Value(null_value=0) if value is None else Value(string_value=value)


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (TypeCode.INT64, [text("-3"), text(None)], (-3, None)),
        (TypeCode.STRING, [text(""), text(None), text("a")], ("", None, "a")),
        (TypeCode.TIMESTAMP, [text("1970-01-01T00:00:00.000001Z")], (1,)),
        (TypeCode.BOOL, [Value(bool_value=True), text(None)], (True, None)),
    ],
)
def test_a_column_becomes_canonical(code: TypeCode, values: list[Value], expected: tuple):
    assert _column(code, values) == expected
    with pytest.raises(TypeError, match="JSON"):
        _column(TypeCode.JSON, [text("{}")])
