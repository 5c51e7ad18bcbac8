"""The texts are those of Google's emulator 1.5.28, without its places in its own source."""

from __future__ import annotations

import random

import pytest

from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.journal import JournalEntry
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.ddl_text import catalogue_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.analysis import SqlAnalysis
from unit.shop_protos import BUNDLE, shop_descriptors

TABLE = "CREATE TABLE T (K INT64, C shop.Customer, E ARRAY<shop.Tier>) PRIMARY KEY (K)"
SHOP = shop_descriptors()


class Shop:
    """A catalogue that understands descriptors."""

    def __init__(self, *statements: str) -> None:
        self.catalogue = Catalogue(analysis=SqlAnalysis)
        self.apply(*statements)

    def apply(self, *statements: str, descriptors: bytes = SHOP) -> None:
        for statement in statements:
            apply_statement(
                self.catalogue, parse_ddl(statement), now_us=1, proto_descriptors=descriptors
            )

    def refusal(self, statement: str, descriptors: bytes = SHOP) -> str:
        before = catalogue_ddl(self.catalogue), dict(self.catalogue.proto_files)
        with pytest.raises(SpannerError) as caught:
            self.apply(statement, descriptors=descriptors)
        assert (catalogue_ddl(self.catalogue), dict(self.catalogue.proto_files)) == before
        return f"{caught.value.code.name} {caught.value.message}"

    def type_of(self, column: str) -> ValueType:
        return self.catalogue.table("T").column(column).value_type


def test_columns_get_the_types_of_the_bundle() -> None:
    shop = Shop(BUNDLE, TABLE)
    tier = ValueType(
        "ENUM", proto_name="shop.Tier", members=(("UNKNOWN", 0), ("GOLD", 1), ("SILVER", 2))
    )
    assert shop.type_of("C") == ValueType("PROTO", proto_name="shop.Customer")
    assert shop.type_of("E") == ValueType("ARRAY", tier)
    assert catalogue_ddl(shop.catalogue) == [
        "CREATE PROTO BUNDLE (\n  shop.Customer,\n  shop.Customer.Address,\n  shop.Tier,\n)",
        (
            "CREATE TABLE T (\n  K INT64,\n  C `shop.Customer`,\n  E ARRAY<`shop.Tier`>,\n"
            ") PRIMARY KEY(K)"
        ),
    ]


ALTER = "ALTER TABLE T ALTER COLUMN C"
CHANGED = "Cannot change type of column `C` from `shop.Customer` to"


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("CREATE TABLE X (K INT64, C shop.Nope) PRIMARY KEY (K)", "Type not found: shop.Nope"),
        ("ALTER TABLE T ADD COLUMN X SHOP.TIER", "Type not found: SHOP.TIER"),
        (f"{ALTER} FOO", "Type not found: FOO"),
        (
            "CREATE TABLE X (C shop.Customer) PRIMARY KEY (C)",
            "Column X.C has type shop.Customer, but is part of the primary key.",
        ),
        (f"{ALTER} shop.Tier", f"{CHANGED} `shop.Tier`"),
        (f"{ALTER} STRING(MAX)", f"{CHANGED} `STRING`"),
    ],
)
def test_refusals(statement: str, refusal: str) -> None:
    assert Shop(BUNDLE, TABLE).refusal(statement) == f"INVALID_ARGUMENT {refusal}"


def test_bundles_need_readable_descriptors_and_an_analyser_and_there_is_one() -> None:
    empty = "INVALID_ARGUMENT Contents of proto_descriptor_file cannot be empty"
    malformed = "INVALID_ARGUMENT Could not parse contents of proto_descriptor_file"
    second = "UNIMPLEMENTED The simulator does not support: a second CREATE PROTO BUNDLE"
    assert Shop().refusal(BUNDLE, b"") == empty
    assert Shop().refusal("CREATE PROTO BUNDLE (a.B)") == "NOT_FOUND Missing descriptor for `a.B`"
    assert Shop().refusal(BUNDLE, b"garbage") == malformed
    assert Shop(BUNDLE).refusal("CREATE PROTO BUNDLE (shop.Tier)") == second
    with pytest.raises(SpannerError, match="PROTO BUNDLE here"):
        apply_statement(Catalogue(), parse_ddl(BUNDLE), now_us=1, proto_descriptors=SHOP)


def test_a_journal_gives_the_bundle_again() -> None:
    def database() -> Database:
        return Database("d", random.Random(1), DatabaseSettings(), analysis=SqlAnalysis)

    entries: list[JournalEntry] = []
    one, other = database(), database()
    one.journal.listener = entries.append
    one.apply_ddl([BUNDLE, TABLE], now_us=5, proto_descriptors=SHOP)
    write = Write("insert", "T", ("K", "C", "E"), (["1", "CgNBbm4=", ["1", None]],))
    one.commit(one.begin(), [write], now_us=6)
    for entry in entries:
        other.replay(entry)
    kept = [bool(getattr(entry, "proto_descriptors", b"")) for entry in entries]
    assert kept == [True, False, False]
    assert catalogue_ddl(other.catalogue) == catalogue_ddl(one.catalogue)
    assert other.catalogue.proto_files == one.catalogue.proto_files
    everything = KeySet(everything=True)
    (row,) = other.read(other.catalogue.table("T"), everything, transaction=None, read_us=None)
    assert row == {"K": 1, "C": b"\n\x03Ann", "E": (1, None)}
