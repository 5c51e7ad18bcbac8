"""A right output passes the judge; each way of being wrong shows in the figure named for it."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidegate.local_stack.demo import bank
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, Bank
from tidegate.local_stack.judge import verdict as judge
from tidegate.local_stack.judge.log import origin_number, parse_commit_log
from tidegate.local_stack.judge.verdict import Verdict, judge_output

START_US = 1_700_000_000_000_000
BANK = Bank(accounts=4, seed=1)
COLUMNS = {
    ACCOUNTS: ("AccountId", "Owner", "Balance", "Transfers"),
    LEDGER: ("TransferId", "FromAccount", "ToAccount", "Amount", "Note", "CommittedAt"),
}
KEYS = {ACCOUNTS: "AccountId", LEDGER: "TransferId"}
INTEGERS = {"Balance", "Transfers", "Amount"}

TIMESTAMP = pa.timestamp("us", tz="UTC")
SOURCE = pa.struct(
    [
        ("commit_timestamp", TIMESTAMP),
        ("server_transaction_id", pa.string()),
        ("record_sequence", pa.string()),
        ("mod_number", pa.int32()),
        ("is_last_record_in_transaction_in_partition", pa.bool_()),
        ("number_of_records_in_transaction", pa.int64()),
        ("number_of_partitions_in_transaction", pa.int64()),
        ("transaction_tag", pa.string()),
        ("is_system_transaction", pa.bool_()),
        ("value_capture_type", pa.string()),
        ("change_stream", pa.string()),
        ("partition_token", pa.string()),
    ]
)


def instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def arrow_type(column: str) -> pa.DataType:
    if column in INTEGERS:
        return pa.int64()
    return TIMESTAMP if column == "CommittedAt" else pa.string()


def row_type(table: str) -> pa.DataType:
    return pa.struct([(name, arrow_type(name)) for name in COLUMNS[table]])


def changelog_schema(table: str) -> pa.Schema:
    return pa.schema(
        [
            ("release", pa.int64()),
            ("ordinal", pa.int64()),
            ("commit_timestamp", TIMESTAMP),
            ("server_transaction_id", pa.string()),
            ("record_sequence", pa.string()),
            ("mod_number", pa.int32()),
            ("mod_type", pa.string()),
            ("order_key", pa.binary()),
            ("key", pa.struct([(KEYS[table], pa.string())])),
            ("new_values", row_type(table)),
            ("old_values", row_type(table)),
            ("new_columns", pa.list_(pa.string())),
            ("old_columns", pa.list_(pa.string())),
            ("source", SOURCE),
            ("topic_partition", pa.int32()),
            ("offset", pa.int64()),
            ("origin", pa.int64()),
        ]
    )


def spanner_json(column: str, value: Any) -> Any:
    if column == "CommittedAt":
        return instant(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value) if column in INTEGERS else value


@dataclass
class World:
    """A bank's whole life, as the simulator would log it and as a right consumer would write it."""

    lines: list[str] = field(default_factory=list)
    snapshots: list[tuple[int, dict[str, dict[str, dict[str, Any]]]]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Changelog rows of all tables in commit order, with `table`, without a release."""
    tables: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {ACCOUNTS: {}, LEDGER: {}}
    )

    def commit(self, at_us: int, writes: list[tuple[str, dict[str, Any]]], *, tag: str) -> None:
        """Insert or update rows in one transaction, each change in a record of its own."""
        changes = []
        tokens = ["left", "right"]
        for sequence, (table, written) in enumerate(writes):
            key = written[KEYS[table]]
            before = self.tables[table].get(key)
            after = (before or dict.fromkeys(COLUMNS[table])) | written
            self.tables[table] = self.tables[table] | {key: after}
            keys = {KEYS[table]: key}
            new = after if before is None else {**keys, **written}
            old = None if before is None else {name: before[name] for name in new}
            mod_type = "INSERT" if before is None else "UPDATE"
            place = {
                "commit_timestamp": instant(at_us),
                "server_transaction_id": f"transaction-{at_us}",
                "record_sequence": f"{sequence:08d}",
                "mod_number": 0,
            }
            changes.append(
                {
                    "table": table,
                    "mod_type": mod_type,
                    "keys": keys,
                    "new_values": {n: spanner_json(n, v) for n, v in new.items()},
                    "old_values": {n: spanner_json(n, v) for n, v in (old or {}).items()},
                    "record_sequence": place["record_sequence"],
                    "mod_number": 0,
                }
            )
            self.rows.append(
                {
                    "table": table,
                    **place,
                    "mod_type": mod_type,
                    "order_key": b"",
                    "key": keys,
                    "new_values": dict(new),
                    "old_values": old and dict(old),
                    "new_columns": None if before is None else list(new),
                    "old_columns": None if before is None else list(new),
                    "source": {
                        **place,
                        "number_of_records_in_transaction": len(writes),
                        "number_of_partitions_in_transaction": len(tokens),
                        "transaction_tag": tag,
                        "partition_token": "",
                    },
                    "origin": origin_number(tokens[sequence % 2]),
                    "topic_partition": 0,
                    "offset": len(self.rows),
                }
            )
        self.lines.append(
            json.dumps(
                {
                    "index": len(self.lines),
                    "commit_timestamp_us": at_us,
                    "server_transaction_id": f"transaction-{at_us}",
                    "tag": tag,
                    "stream_partition_tokens": tokens,
                    "changes": changes,
                }
            )
        )
        self.snapshots.append((at_us, dict(self.tables)))

    def at(self, us: int | None) -> dict[str, dict[str, dict[str, Any]]]:
        past = [tables for at_us, tables in self.snapshots if us is None or at_us <= us]
        return past[-1] if past else {ACCOUNTS: {}, LEDGER: {}}


def bank_world(transfers: int = 8) -> World:
    world = World()
    opening = [dict(zip(COLUMNS[ACCOUNTS], row, strict=True)) for row in BANK.opening_rows()]
    world.commit(START_US, [(ACCOUNTS, row) for row in opening], tag="open")
    for number in range(transfers):
        at_us = START_US + (number + 1) * 1_000
        transfer = BANK.transfer(number)
        accounts = world.tables[ACCOUNTS]
        debit, credit, amount = transfer.settle(
            accounts[transfer.debit]["Balance"], accounts[transfer.credit]["Balance"]
        )
        world.commit(
            at_us,
            [
                (ACCOUNTS, {"AccountId": debit, "Balance": accounts[debit]["Balance"] - amount}),
                (ACCOUNTS, {"AccountId": credit, "Balance": accounts[credit]["Balance"] + amount}),
                (
                    LEDGER,
                    {
                        "TransferId": transfer.transfer_id,
                        "FromAccount": debit,
                        "ToAccount": credit,
                        "Amount": amount,
                        "Note": transfer.note,
                        "CommittedAt": at_us,
                    },
                ),
            ],
            tag=f"transfer-{number}",
        )
    return world


@dataclass
class Output:
    """A consumer's output, right until a test changes something; `write` puts it on disk."""

    world: World
    bounds: list[tuple[int, int]]
    releases: list[list[dict[str, Any]]]
    mirrors: list[dict[str, dict[str, dict[str, Any]]]]
    late: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def right(cls, world: World) -> Output:
        ends = [START_US - 500, START_US + 500, START_US + 4_500, START_US + 90_000]
        bounds = [(START_US - 90_000, ends[0]), *pairwise(ends)]
        releases = []
        for after_us, through_us in bounds:
            rows = [
                dict(row)
                for row in world.rows
                if instant(after_us) < row["commit_timestamp"] <= instant(through_us)
            ]
            for ordinal, row in enumerate(rows):
                row["ordinal"] = ordinal
            releases.append(rows)
        return cls(world, bounds, releases, [world.at(through) for _, through in bounds])

    def write(self, folder: Path) -> Path:
        versions = {ACCOUNTS: -1, LEDGER: -1}
        for number, rows in enumerate(self.releases):
            entries = {}
            for table in (ACCOUNTS, LEDGER):
                own = [{**row, "release": number} for row in rows if row["table"] == table]
                if own:
                    self._append_changelog(folder, table, own)
                    versions[table] += 1
                self._write_mirror(folder, table, self.mirrors[number][table])
                entries[table] = {
                    "changelog": {
                        "path": f"changelog/{table}",
                        "version": versions[table] if versions[table] >= 0 else None,
                        "rows": len(own),
                    },
                    "mirror": {"path": f"mirror/{table}", "version": number},
                }
            after_us, through_us = self.bounds[number]
            manifest = {
                "release": number,
                "query_id": "q",
                "batch": number,
                "after_us": after_us,
                "through_us": through_us,
                "rows": len(rows),
                "tables": entries,
            }
            path = folder / "_releases" / f"{number:012d}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(manifest))
        if self.late:
            rows = [{"offset": row["offset"]} for row in self.late]
            write_deltalake(str(folder / "late"), pa.Table.from_pylist(rows))
        return folder

    @staticmethod
    def _append_changelog(folder: Path, table: str, rows: list[dict[str, Any]]) -> None:
        content = pa.Table.from_pylist(
            [{name: row.get(name) for name in changelog_schema(table).names} for row in rows],
            schema=changelog_schema(table),
        )
        write_deltalake(str(folder / "changelog" / table), content, mode="append")

    @staticmethod
    def _write_mirror(folder: Path, table: str, rows: dict[str, dict[str, Any]]) -> None:
        schema = pa.schema([(name, arrow_type(name)) for name in COLUMNS[table]])
        content = pa.Table.from_pylist(list(reversed(rows.values())), schema=schema)
        write_deltalake(str(folder / "mirror" / table), content, mode="overwrite")


@dataclass
class WorldSource:
    """The source tables, as the official client would read them."""

    world: World

    def tables(self) -> list[str]:
        return [ACCOUNTS, LEDGER]

    def primary_key(self, table: str) -> list[str]:
        return [KEYS[table]]

    def read(self, table: str, *, at_us: int | None) -> dict[str, tuple[Any, ...]]:
        rows = self.world.at(at_us)[table].values()
        return {name: tuple(row[name] for row in rows) for name in COLUMNS[table]}


@pytest.fixture(scope="module")
def world() -> World:
    return bank_world()


def verdict_on(output: Output, folder: Path) -> Verdict:
    return judge_output(
        output.write(folder),
        transactions=parse_commit_log(output.world.lines),
        source=WorldSource(output.world),
        rule=lambda cut, us: BANK.faults(cut, opened=us >= START_US),
    )


def faults(verdict: Verdict) -> dict[str, int | bool]:
    """Every figure that counts a fault and is not 0."""
    log, cuts = verdict.changelog, verdict.cuts
    figures = {
        "missing": log.missing,
        "duplicates": log.duplicates,
        "invented": log.invented,
        "unlike": log.unlike_source,
        "out_of_order": log.out_of_order,
        "ordinals": log.ordinals_broken,
        "torn": log.torn,
        "outside": log.outside_release,
        "late": verdict.late,
        "cuts_unlike": cuts.unlike_source,
        "wrong_total": cuts.with_wrong_total,
        "last_unlike": not cuts.mirror_equals_source,
    }
    return {name: figure for name, figure in figures.items() if figure}


def test_a_right_output_has_no_fault(world: World, tmp_path: Path) -> None:
    verdict = verdict_on(Output.right(world), tmp_path)

    assert faults(verdict) == {}
    assert verdict.changelog.examples == verdict.cuts.examples == ()
    assert verdict.changelog.changes_committed == verdict.changelog.changes_in_changelog == 28
    assert (verdict.transactions, verdict.transactions_across_partitions) == (9, 9)
    assert verdict.cuts.releases == 4
    assert len(verdict.deliveries) == 28
    assert all(way.delivered_us > way.committed_us for way in verdict.deliveries)


def test_a_lost_row_is_missing(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.releases[2].pop(4)

    found = faults(verdict_on(output, tmp_path))

    assert found == {"missing": 1, "ordinals": 1}


def test_a_change_that_the_stream_forgot_is_missing(world: World, tmp_path: Path) -> None:
    line = json.loads(world.lines[3])
    line["changes"][1]["record_sequence"] = line["changes"][1]["mod_number"] = None
    broken = World(
        [*world.lines[:3], json.dumps(line), *world.lines[4:]], world.snapshots, world.rows
    )

    found = faults(verdict_on(Output.right(broken), tmp_path))

    # The row that the world's consumer has all the same is one that the log does not know.
    assert found["missing"] == 1
    assert found["invented"] == 1


def test_a_repeated_row_is_a_duplicate(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.releases[2].insert(3, dict(output.releases[2][2]))
    for ordinal, row in enumerate(output.releases[2]):
        row["ordinal"] = ordinal

    found = faults(verdict_on(output, tmp_path))

    assert found == {"duplicates": 1}


def test_a_repeat_in_a_later_release_is_a_duplicate(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.releases[3].insert(0, dict(output.releases[2][2]))
    for ordinal, row in enumerate(output.releases[3]):
        row["ordinal"] = ordinal

    found = faults(verdict_on(output, tmp_path))

    assert found["duplicates"] == 1
    assert found["out_of_order"] >= 1
    assert found["torn"] == 1
    assert found["outside"] == 1


def test_swapped_ordinals_are_out_of_order(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    first, second = output.releases[2][4:6]
    first["ordinal"], second["ordinal"] = second["ordinal"], first["ordinal"]

    found = faults(verdict_on(output, tmp_path))

    assert found == {"out_of_order": 1}


def test_rows_swapped_in_a_file_are_out_of_order(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    own = [at for at, row in enumerate(output.releases[2]) if row["table"] == ACCOUNTS]
    rows = output.releases[2]
    rows[own[0]], rows[own[1]] = rows[own[1]], rows[own[0]]

    found = faults(verdict_on(output, tmp_path))

    assert found == {"out_of_order": 1}


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("new_values", lambda row: row["new_values"] | {"Balance": 5}),
        ("new_values", lambda row: row["new_values"] | {"Balance": None}),
        ("old_values", lambda row: row["old_values"] | {"Balance": 5}),
        ("new_columns", lambda _: ["AccountId"]),
        ("new_columns", lambda _: None),
        ("old_columns", lambda _: ["AccountId"]),
        ("mod_type", lambda _: "DELETE"),
        ("key", lambda _: {"AccountId": "somebody else"}),
        ("source", lambda row: row["source"] | {"transaction_tag": "other"}),
        ("origin", lambda _: origin_number("other")),
        ("source", lambda row: row["source"] | {"number_of_records_in_transaction": 4}),
        ("source", lambda row: row["source"] | {"number_of_partitions_in_transaction": 1}),
        ("source", lambda row: row["source"] | {"record_sequence": "00000099"}),
    ],
)
def test_a_wrong_value_is_unlike_the_source(
    world: World, tmp_path: Path, column: str, change: Any
) -> None:
    output = Output.right(world)
    row = next(row for row in output.releases[2] if row["mod_type"] == "UPDATE")
    row[column] = change(row)

    found = faults(verdict_on(output, tmp_path))

    assert found == {"unlike": 1}


def test_a_wrong_timestamp_value_is_unlike_the_source(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    row = next(row for row in output.releases[2] if row["table"] == LEDGER)
    at_us = row["new_values"]["CommittedAt"]
    row["new_values"] = row["new_values"] | {"CommittedAt": at_us + 1}

    found = faults(verdict_on(output, tmp_path))

    assert found == {"unlike": 1}


def test_an_invented_row_is_seen(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.releases[2][-1] = output.releases[2][-1] | {"server_transaction_id": "transaction-x"}

    found = faults(verdict_on(output, tmp_path))

    assert (found["invented"], found["missing"]) == (1, 1)


def test_a_torn_transaction_shows_in_every_place_it_touches(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    moved = output.releases[2].pop()
    output.releases[3].insert(0, moved)
    for ordinal, row in enumerate(output.releases[3]):
        row["ordinal"] = ordinal
    transfer = moved["new_values"]["TransferId"]
    output.mirrors[2] = {
        ACCOUNTS: output.mirrors[2][ACCOUNTS],
        LEDGER: {key: row for key, row in output.mirrors[2][LEDGER].items() if key != transfer},
    }

    found = faults(verdict_on(output, tmp_path))

    assert found == {"torn": 1, "outside": 1, "cuts_unlike": 1, "wrong_total": 1}


def test_half_a_transfer_in_the_mirror_changes_the_total(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    before, after = output.mirrors[1][ACCOUNTS], output.mirrors[2][ACCOUNTS]
    lost = next(key for key in after if after[key] != before[key])
    output.mirrors[2] = {ACCOUNTS: after | {lost: before[lost]}, LEDGER: output.mirrors[2][LEDGER]}

    found = faults(verdict_on(output, tmp_path))

    assert found == {"cuts_unlike": 1, "wrong_total": 1}


def test_an_update_lost_for_good_shows_at_the_end(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    accounts = output.mirrors[3][ACCOUNTS]
    key = next(iter(accounts))
    output.mirrors[3] = {
        ACCOUNTS: accounts | {key: accounts[key] | {"Owner": "Nobody"}},
        LEDGER: output.mirrors[3][LEDGER],
    }

    found = faults(verdict_on(output, tmp_path))

    assert found == {"cuts_unlike": 1, "last_unlike": True}


def test_a_mirror_one_table_behind_is_no_cut(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.mirrors[2] = {ACCOUNTS: output.mirrors[2][ACCOUNTS], LEDGER: output.mirrors[1][LEDGER]}

    found = faults(verdict_on(output, tmp_path))

    assert found == {"cuts_unlike": 1, "wrong_total": 1}


def test_two_mirror_rows_of_one_key_are_seen(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    accounts = output.mirrors[3][ACCOUNTS]
    twin = next(iter(accounts.values()))
    output.mirrors[3] = {
        ACCOUNTS: accounts | {"twin": twin},
        LEDGER: output.mirrors[3][LEDGER],
    }

    found = faults(verdict_on(output, tmp_path))

    assert found["cuts_unlike"] == 1
    assert found["last_unlike"] is True


def test_a_row_in_the_side_table_is_late(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.late.append(world.rows[3])

    assert faults(verdict_on(output, tmp_path)) == {"late": 1}


def test_releases_that_overlap_are_seen(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    after_us, through_us = output.bounds[3]
    output.bounds[3] = (after_us - 1, through_us)

    assert faults(verdict_on(output, tmp_path)) == {"outside": 1}


def test_a_watermark_that_passed_no_change_leaves_a_gap_that_is_right(
    world: World, tmp_path: Path
) -> None:
    output = Output.right(world)
    after_us, through_us = output.bounds[3]
    output.bounds[3] = (after_us + 1, through_us)

    assert faults(verdict_on(output, tmp_path)) == {}


def test_a_release_that_is_not_there_is_seen(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.write(tmp_path)
    (tmp_path / "_releases" / "000000000002.json").unlink()

    verdict = judge_output(
        tmp_path,
        transactions=parse_commit_log(world.lines),
        source=WorldSource(world),
        rule=lambda *_: (),
    )

    # Its twelve rows stand in no release, and its number is left out.
    assert faults(verdict) == {"outside": 13}


def test_a_manifest_with_a_wrong_count_is_seen(world: World, tmp_path: Path) -> None:
    output = Output.right(world)
    output.write(tmp_path)
    path = tmp_path / "_releases" / "000000000002.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": 99}))

    verdict = judge_output(
        tmp_path,
        transactions=parse_commit_log(world.lines),
        source=WorldSource(world),
        rule=lambda *_: (),
    )

    assert faults(verdict) == {"outside": 1}


def test_no_output_at_all_is_everything_missing(world: World, tmp_path: Path) -> None:
    verdict = judge_output(
        tmp_path,
        transactions=parse_commit_log(world.lines),
        source=WorldSource(world),
        rule=lambda *_: (),
    )

    assert faults(verdict) == {"missing": 28, "last_unlike": True}


def test_the_judge_shares_nothing_with_what_it_judges() -> None:
    folder = Path(judge.__file__).parent
    assert bank.__file__ is not None
    files = [*folder.glob("*.py"), Path(bank.__file__)]
    imported = {
        name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if name.startswith("tidegate")
    }

    assert len(files) >= 8
    assert {name for name in imported if not name.startswith("tidegate.local_stack.judge")} == set()
