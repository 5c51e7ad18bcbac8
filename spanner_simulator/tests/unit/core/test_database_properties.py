"""Transactions over a few rows, interleaved at will, against a model that runs them one by one.

Each transaction notes what it read and did. When it commits, the model does the same to its own
rows, all at once: whatever the transaction saw must be what the model sees at that moment. That is
serialisability in the order of commits. After every step the indexes must equal what the rows say,
no child may be without its parent, and every past moment must still read as it was.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.rows.key_sets import KeyBound, KeySet, KeySpan
from spanner_simulator.core.rows.mutations import Delete, Mutation, Write
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError

CHILD = (
    "CREATE TABLE {} (A INT64 NOT NULL, B INT64 NOT NULL, V INT64) PRIMARY KEY (A, B), "
    "INTERLEAVE IN PARENT P"
)
DDL = (
    "CREATE TABLE P (A INT64 NOT NULL, V INT64) PRIMARY KEY (A)",
    "CREATE UNIQUE NULL_FILTERED INDEX PV ON P (V DESC)",
    f"{CHILD.format('C')} ON DELETE CASCADE",
    "CREATE INDEX CV ON C (V)",
    CHILD.format("N"),
    "CREATE CHANGE STREAM Every FOR ALL",
)
KEYS = {"P": 1, "C": 2, "N": 2}
REFUSALS = dict.fromkeys((Code.ALREADY_EXISTS, Code.NOT_FOUND, Code.FAILED_PRECONDITION), "refused")
ALL = KeySet(everything=True)
Model = dict[str, dict[tuple[int, ...], int | None]]

NUMBERS = st.integers(0, 2)
KINDS = st.sampled_from(["insert", "update", "insert_or_update", "replace"])
TABLES = st.sampled_from(["P", "P", "C", "N"])
# Per step: which transaction, what it does, and where.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ["read", "scan", "write", "write", "delete", "delete_range", "commit", "commit"]
        ),
        TABLES,
        st.tuples(NUMBERS, NUMBERS),
        KINDS,
        st.none() | NUMBERS,
    ),
    min_size=8,
    max_size=30,
)


class Refused(Exception):
    """What the model says to a mutation that must not be."""


@dataclass
class Actor:
    """One transaction and what it did, as functions of a model's rows to what it then saw."""

    transaction: Transaction
    history: list[tuple[Any, object]] = field(default_factory=list)


class World:
    """A database and the model beside it."""

    def __init__(self, *, equal_timestamps: float = 0.0) -> None:
        self.database = Database("d", random.Random(3), DatabaseSettings(2, equal_timestamps))
        self.now_us = 1_000
        self.database.apply_ddl(DDL, now_us=self.now_us)
        self.rows: Model = {"P": {}, "C": {}, "N": {}}
        self.past: dict[int, Model] = {}
        self.actors: dict[int, Actor] = {}
        for table, key in (("P", (0,)), ("P", (1,)), ("C", (0, 0)), ("C", (1, 1)), ("C", (1, 2))):
            mutation, action = mutation_of("write", table, key, "insert", None)
            self.commit(0, [mutation], [action])

    def actor(self, number: int) -> Actor:
        if number not in self.actors:
            self.actors[number] = Actor(self.database.begin())
        return self.actors[number]

    def read(
        self,
        actor: Actor | None,
        table: str,
        keys: KeySet = ALL,
        read_us: int | None = None,
        index: str = "",
    ) -> object:
        found = self.database.read(
            self.database.catalogue.table(table),
            keys,
            transaction=None if actor is None else actor.transaction,
            read_us=read_us,
            index=index,
        )
        return [tuple(row.values()) for row in found]

    def commit(self, number: int, mutations: list[Mutation], model_of: list[Any]) -> None:
        actor = self.actor(number)
        self.now_us += 10
        refused: SpannerError | None = None
        try:
            at_us = self.database.commit(actor.transaction, mutations, now_us=self.now_us)
        except SpannerError as error:
            refused = error
        if refused is not None and refused.code is Code.ABORTED:
            del self.actors[number]
            return
        rows = deepcopy(self.rows)
        for action, seen in actor.history:
            assert outcome(action, rows) == seen
        mine = deepcopy(rows)
        try:
            for action in model_of:
                action(mine)
            check_unique(mine)
        except Refused:
            assert refused is not None
            return
        assert refused is None
        del self.actors[number]
        self.rows = mine
        self.past[at_us] = mine

    def check(self) -> None:
        """What must hold after every step."""
        for at_us, model in [(None, self.rows), *self.past.items()]:
            for table, rows in model.items():
                expected = [(*key, rows[key]) for key in sorted(rows)]
                assert self.read(None, table, read_us=at_us) == expected
            by_value = {
                table: [(value, *key) for key, value in model[table].items()] for table in "PC"
            }
            assert self.read(None, "P", read_us=at_us, index="PV") == sorted(
                (entry for entry in by_value["P"] if entry[0] is not None), reverse=True
            )
            assert self.read(None, "C", read_us=at_us, index="CV") == sorted(
                by_value["C"], key=lambda entry: (entry[0] is not None, entry)
            )
        for table in ("C", "N"):
            assert all(key[:1] in self.rows["P"] for key in self.rows[table])


def outcome(action: Any, rows: Model) -> object:
    """What an action sees; the rows are then as it leaves them, unless it is refused."""
    before = deepcopy(rows)
    try:
        seen = action(rows)
        check_unique(rows)
    except Refused:
        rows.clear()
        rows.update(before)
        return "refused"
    return seen


def check_unique(rows: Model) -> None:
    values = [value for value in rows["P"].values() if value is not None]
    if len(set(values)) < len(values):
        raise Refused


def remove(rows: Model, table: str, key: tuple[int, ...]) -> None:
    if key not in rows[table]:
        return
    if table == "P":
        if any(child[:1] == key for child in rows["N"]):
            raise Refused
        rows["C"] = {child: v for child, v in rows["C"].items() if child[:1] != key}
    del rows[table][key]


def put(rows: Model, kind: str, table: str, key: tuple[int, ...], value: int | None) -> None:
    exists = key in rows[table]
    if (kind == "insert" and exists) or (kind == "update" and not exists):
        raise Refused
    if kind == "replace":
        remove(rows, table, key)
        exists = False
    if not exists and table != "P" and key[:1] not in rows["P"]:
        raise Refused
    rows[table][key] = value


def mutation_of(
    kind: str, table: str, key: tuple[int, ...], write: str, value: int | None
) -> tuple[Mutation, Any]:
    """A mutation and what it does to the model."""
    plain = [str(part) for part in key]
    match kind:
        case "write":
            columns = ("A", "B")[: len(key)]
            values = [*plain, None if value is None else str(value)]
            mutation: Mutation = Write(write, table, (*columns, "V"), (values,))  # type: ignore[arg-type]
            return mutation, lambda rows: put(rows, write, table, key, value)
        case "delete":
            return Delete(table, KeySet(keys=(plain,))), lambda rows: remove(rows, table, key)
        case _:
            low, high = KeyBound(plain[:1], inclusive=True), KeyBound(["1"], inclusive=True)
            span = KeySpan(low, high)

            def remove_all(rows: Model) -> None:
                for one in sorted(rows[table]):
                    if key[0] <= one[0] <= 1:
                        remove(rows, table, one)

            return Delete(table, KeySet(spans=(span,))), remove_all


def step(world: World, one: Any) -> None:
    number, kind, table, two, write, value = one
    actor = world.actor(number)
    key = two[: KEYS[table]]
    match kind:
        case "read":
            seen = world.read(actor, table, KeySet(keys=([str(part) for part in key],)))
            actor.history.append(
                (lambda rows: [(*key, rows[table][key])] if key in rows[table] else [], seen)
            )
        case "scan":
            seen = world.read(actor, table)
            actor.history.append(
                (lambda rows: [(*one, rows[table][one]) for one in sorted(rows[table])], seen)
            )
        case "commit":
            last = [mutation_of("write", table, key, write, value)] if value else []
            world.commit(number, [one for one, _ in last], [action for _, action in last])
        case _:
            mutation, action = mutation_of(kind, table, key, write, value)
            try:
                world.database.execute(actor.transaction, [mutation])
                actor.history.append((action, None))
            except SpannerError as error:
                actor.history.append((action, REFUSALS[error.code]))


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0.0, 1.0]))
def test_transactions_are_serialisable_in_the_order_of_their_commits(
    steps: list[Any], equal_timestamps: float
) -> None:
    world = World(equal_timestamps=equal_timestamps)
    for one in steps:
        step(world, one)
        if equal_timestamps == 0.0:
            world.check()


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_records_lead_from_each_moments_rows_to_the_next(steps: list[Any]) -> None:
    """The net changes of a change stream, applied to nothing, give the rows."""
    world = World()
    for one in steps:
        step(world, one)
    rows: dict[tuple[str, str], object] = {}
    for transaction in world.database.streams.state("Every").log.transactions:
        for change in transaction.as_json()["changes"]:  # type: ignore[attr-defined]
            place = change["table"], str(change["keys"])
            assert (place in rows) == (change["mod_type"] != "INSERT")
            if change["mod_type"] == "DELETE":
                assert rows.pop(place) == change["old_values"]["V"]
            else:
                assert change["mod_type"] == "INSERT" or rows[place] == change["old_values"]["V"]
                rows[place] = change["new_values"]["V"]
    expected = {
        (table, str({name: str(part) for name, part in zip("AB", key, strict=False)})): (
            None if value is None else str(value)
        )
        for table, held in world.rows.items()
        for key, value in held.items()
    }
    assert rows == expected
