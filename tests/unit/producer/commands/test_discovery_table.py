"""The table fits 100 columns whatever names are long, and takes no name for markup."""

from rich.console import Console

from tidegate.producer.commands.discovery_table import discovery_table
from tidegate.producer.source_objects import Discovery, SourceField, SourceObject


def printed(found):
    console = Console(width=100, record=True, file=None)
    with console.capture() as captured:
        console.print(discovery_table(found))
    return captured.get()


def test_tables_of_spanner():
    fields = (
        SourceField("Id", "INT64", nullable=False, key_position=1, watched_by=("Feed",)),
        SourceField("[red]x", "ARRAY<STRING>", nullable=True),
    )
    objects = (SourceObject("T", fields, watched_by=("Feed",)), SourceObject("U", fields[:1]))
    text = printed(Discovery("spanner", "db", ("Feed",), objects, notes=("something",)))
    for part in ("change streams: Feed", "watched by", "[red]x", "U (not watched)",
                 "Note: something."):  # fmt: skip
        assert part in text
    assert "T (not watched)" not in text


def test_objects_of_files():
    field = SourceField("id", "LONG", nullable=None)
    one = SourceObject("a.b", (field,), files_read=3, events={"DELETE": 1, "INSERT": 1_000})
    text = printed(Discovery("mysql", "gs://b/p", (), (one,)))
    for part in ("mysql: gs://b/p", "streams: none", "unknown", "no key", "1,000 INSERT",
                 "1 DELETE", "3 files"):  # fmt: skip
        assert part in text
    assert "watched" not in text


def test_long_names_are_folded_into_100_columns():
    name = "x" * 300
    one = SourceObject(name, (SourceField(name, name, nullable=True, watched_by=(name,)),))
    for kind in ("spanner", "mysql"):
        text = printed(Discovery(kind, name, (name,), (one,)))
        assert max(map(len, text.splitlines())) <= 100
        assert text.replace("\n", "").count("x") > 1_000
