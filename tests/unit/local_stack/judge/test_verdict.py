"""A right output passes the judge; each way of being wrong shows in the figure named for it."""

from __future__ import annotations

import ast
import copy
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
        *((name, pa.string()) for name in ("server_transaction_id", "record_sequence")),
        ("mod_number", pa.int32()),
        ("is_last_record_in_transaction_in_partition", pa.bool_()),
        ("number_of_records_in_transaction", pa.int64()),
        ("number_of_partitions_in_transaction", pa.int64()),
        ("transaction_tag", pa.string()),
        ("is_system_transaction", pa.bool_()),
        *((name, pa.string()) for name in ("value_capture_type", "change_stream")),
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
            touched = None if before is None else list(new)
            place = {
                "commit_timestamp": instant(at_us),
                "server_transaction_id": f"transaction-{at_us}",
                "record_sequence": f"{sequence:08d}",
                "mod_number": 0,
            }
            change = {"table": table, "mod_type": mod_type, "keys": keys, "mod_number": 0,
                      "record_sequence": place["record_sequence"]}  # fmt: skip
            change |= {
                name: {n: spanner_json(n, v) for n, v in (values or {}).items()}
                for name, values in (("new_values", new), ("old_values", old))
            }
            changes.append(change)
            source = {
                **place,
                "number_of_records_in_transaction": len(writes),
                "number_of_partitions_in_transaction": len(tokens),
                "transaction_tag": tag,
                "partition_token": "",
            }
            self.rows.append(
                {
                    "table": table, **place, "mod_type": mod_type, "order_key": b"", "key": keys,
                    "new_values": dict(new), "old_values": old and dict(old),
                    "new_columns": touched, "old_columns": touched, "source": source,
                    "origin": origin_number(tokens[sequence % 2]), "topic_partition": 0,
                    "offset": len(self.rows),
                }
            )  # fmt: skip
        line = {
            "index": len(self.lines),
            "commit_timestamp_us": at_us,
            "server_transaction_id": f"transaction-{at_us}",
            "tag": tag,
            "stream_partition_tokens": tokens,
            "changes": changes,
        }
        self.lines.append(json.dumps(line))
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
        balances = {key: row["Balance"] for key, row in world.tables[ACCOUNTS].items()}
        debit, credit, amount = transfer.settle(balances[transfer.debit], balances[transfer.credit])
        row = (transfer.transfer_id, debit, credit, amount, transfer.note, at_us)
        writes = [
            (ACCOUNTS, {"AccountId": debit, "Balance": balances[debit] - amount}),
            (ACCOUNTS, {"AccountId": credit, "Balance": balances[credit] + amount}),
            (LEDGER, dict(zip(COLUMNS[LEDGER], row, strict=True))),
        ]
        world.commit(at_us, writes, tag=f"transfer-{number}")
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
        releases = [
            [
                dict(row)
                for row in world.rows
                if instant(after_us) < row["commit_timestamp"] <= instant(through_us)
            ]
            for after_us, through_us in bounds
        ]
        for rows in releases:
            renumber(rows)
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
                version = versions[table] if versions[table] >= 0 else None
                path = f"changelog/{table}"
                entries[table] = {
                    "changelog": {"path": path, "version": version, "rows": len(own)},
                    "mirror": {"path": f"mirror/{table}", "version": number},
                }
            after_us, through_us = self.bounds[number]
            manifest = {
                "release": number, "query_id": "q", "batch": number, "after_us": after_us,
                "through_us": through_us, "rows": len(rows), "tables": entries,
            }  # fmt: skip
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


def renumber(rows: list[dict[str, Any]]) -> None:
    for ordinal, row in enumerate(rows):
        row["ordinal"] = ordinal


def verdict_of(folder: Path, world: World) -> Verdict:
    return judge_output(
        folder,
        transactions=parse_commit_log(world.lines),
        source=WorldSource(world),
        rule=lambda cut, us: BANK.faults(cut, opened=us >= START_US),
    )


def verdict_on(output: Output, folder: Path) -> Verdict:
    return verdict_of(output.write(folder), output.world)


def faults(verdict: Verdict) -> dict[str, int]:
    """Every figure that counts a fault and is not 0."""
    return {name: figure for name, figure in verdict.faults().items() if figure}


def test_a_right_output_has_no_fault(world: World, tmp_path: Path) -> None:
    verdict = verdict_on(Output.right(world), tmp_path)
    assert faults(verdict) == {}
    assert verdict.changelog.examples == verdict.cuts.examples == ()
    assert verdict.changelog.changes_committed == verdict.changelog.changes_in_changelog == 28
    assert (verdict.transactions, verdict.transactions_across_partitions) == (9, 9)
    assert verdict.cuts.releases == 4
    assert len(verdict.deliveries) == 28
    assert all(way.delivered_us > way.committed_us for way in verdict.deliveries)


def lose_a_row(output: Output) -> None:
    output.releases[2].pop(4)


def repeat_a_row(output: Output) -> None:
    output.releases[2].insert(3, dict(output.releases[2][2]))
    renumber(output.releases[2])


def repeat_in_a_later_release(output: Output) -> None:
    output.releases[3].insert(0, dict(output.releases[2][2]))
    renumber(output.releases[3])


def swap_ordinals(output: Output) -> None:
    first, second = output.releases[2][4:6]
    first["ordinal"], second["ordinal"] = second["ordinal"], first["ordinal"]


def swap_rows_in_a_file(output: Output) -> None:
    rows = output.releases[2]
    a, b = [at for at, row in enumerate(rows) if row["table"] == ACCOUNTS][:2]
    rows[a], rows[b] = rows[b], rows[a]


def invent_a_row(output: Output) -> None:
    output.releases[2][-1] |= {"server_transaction_id": "transaction-x"}


def change_a_timestamp(output: Output) -> None:
    row = next(row for row in output.releases[2] if row["table"] == LEDGER)
    row["new_values"]["CommittedAt"] += 1


def tear_a_transaction(output: Output) -> None:
    moved = output.releases[2].pop()
    output.releases[3].insert(0, moved)
    renumber(output.releases[3])
    ledger = dict(output.mirrors[2][LEDGER])
    del ledger[moved["new_values"]["TransferId"]]
    output.mirrors[2] = output.mirrors[2] | {LEDGER: ledger}


def mirror_half_a_transfer(output: Output) -> None:
    before, after = output.mirrors[1][ACCOUNTS], output.mirrors[2][ACCOUNTS]
    lost = next(key for key in after if after[key] != before[key])
    output.mirrors[2] = output.mirrors[2] | {ACCOUNTS: after | {lost: before[lost]}}


def change_the_last_mirror(output: Output) -> None:
    accounts = output.mirrors[3][ACCOUNTS]
    key = next(iter(accounts))
    changed = accounts | {key: accounts[key] | {"Owner": "Another"}}
    output.mirrors[3] = output.mirrors[3] | {ACCOUNTS: changed}


def leave_one_mirror_behind(output: Output) -> None:
    output.mirrors[2] = output.mirrors[2] | {LEDGER: output.mirrors[1][LEDGER]}


def mirror_a_key_twice(output: Output) -> None:
    accounts = output.mirrors[3][ACCOUNTS]
    twin = next(iter(accounts.values()))
    output.mirrors[3] = output.mirrors[3] | {ACCOUNTS: accounts | {"twin": twin}}


def write_a_late_row(output: Output) -> None:
    output.late.append(output.world.rows[3])


def overlap_releases(output: Output) -> None:
    after_us, through_us = output.bounds[3]
    output.bounds[3] = (after_us - 1, through_us)


def leave_a_gap_without_changes(output: Output) -> None:
    """A watermark that passed no change leaves one that is right."""
    after_us, through_us = output.bounds[3]
    output.bounds[3] = (after_us + 1, through_us)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lose_a_row, {"missing": 1, "ordinals_broken": 1}),
        (repeat_a_row, {"duplicates": 1}),
        (
            repeat_in_a_later_release,
            {"duplicates": 1, "out_of_order": 2, "torn": 1, "outside_release": 1},
        ),
        (swap_ordinals, {"out_of_order": 1}),
        (swap_rows_in_a_file, {"out_of_order": 1}),
        (invent_a_row, {"invented": 1, "missing": 1}),
        (change_a_timestamp, {"unlike_source": 1}),
        (
            tear_a_transaction,
            {"torn": 1, "outside_release": 1, "cuts_unlike_source": 1, "cuts_with_wrong_total": 1},
        ),
        (mirror_half_a_transfer, {"cuts_unlike_source": 1, "cuts_with_wrong_total": 1}),
        (change_the_last_mirror, {"cuts_unlike_source": 1, "mirror_unlike_source": 1}),
        (leave_one_mirror_behind, {"cuts_unlike_source": 1, "cuts_with_wrong_total": 1}),
        (mirror_a_key_twice, {"cuts_unlike_source": 1, "mirror_unlike_source": 1}),
        (write_a_late_row, {"late": 1}),
        (overlap_releases, {"outside_release": 1}),
        (leave_a_gap_without_changes, {}),
    ],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
def test_each_damage_shows_in_the_figures_named_for_it(
    world: World, tmp_path: Path, damage: Any, expected: dict[str, Any]
) -> None:
    output = Output.right(copy.deepcopy(world))
    damage(output)
    assert faults(verdict_on(output, tmp_path)) == expected


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
    assert found == {"unlike_source": 1}


@pytest.mark.parametrize(
    ("changed", "expected"),
    # Twelve rows of a release that is not there, and its number is left out.
    [(None, {"outside_release": 13}), ({"rows": 99}, {"outside_release": 1})],
    ids=["absent", "wrong count"],
)
def test_a_manifest_that_is_absent_or_wrong_is_seen(
    world: World, tmp_path: Path, changed: dict[str, int] | None, expected: dict[str, int]
) -> None:
    path = Output.right(world).write(tmp_path) / "_releases" / "000000000002.json"
    if changed is None:
        path.unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert faults(verdict_of(tmp_path, world)) == expected


def test_no_output_at_all_is_everything_missing(world: World, tmp_path: Path) -> None:
    assert faults(verdict_of(tmp_path, world)) == {"missing": 28, "mirror_unlike_source": 1}


def imported_by(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("tidegate")}


def test_the_judge_shares_nothing_with_what_it_judges(repository: Path) -> None:
    assert bank.__file__ is not None
    of_chaos = repository / "tests" / "chaos" / "judge"
    files = [*Path(judge.__file__).parent.glob("*.py"), Path(bank.__file__)]
    files += [path for path in of_chaos.glob("*.py") if not path.name.startswith("test_")]
    assert len(files) >= 18
    for name in set().union(*map(imported_by, files)):
        assert name.startswith("tidegate.local_stack.judge")
