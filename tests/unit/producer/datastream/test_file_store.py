"""Local folders and buckets of S3 and GCS: what they hold, and what is said of what is not read."""

import json
import logging
import os
import random
import shutil
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tests.buckets import SECRET, s3_server
from tests.datastream_files import SOURCES, backfill, history, json_bytes
from tests.file_places import BucketPlace
from tidegate.producer.datastream import file_store
from tidegate.producer.datastream.errors import MixedSources, Position
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.file_store import (
    Entry,
    FsspecStore,
    LocalStore,
    LocationGone,
    PathMissing,
    open_location,
    refuse,
)
from tidegate.producer.datastream.inventory import Inventory
from tidegate.producer.datastream.listing import all_files, newest_files, object_folders
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.description import SourceField
from tidegate.schemas.errors import ConfigError, UnreachableError


@pytest.fixture
def logless(monkeypatch, capfd):
    """Standard error of a program that has set up no logging of Python's own."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return capfd


def test_a_folder_lists_what_it_holds_by_name(place):
    for name in ("b/1.avro", "c.avro", "a/2/3.avro"):
        place.put(name, b"x")
    entries = place.store.entries(place.root)
    assert [(entry.name, entry.is_folder) for entry in entries] == [
        ("a", True), ("b", True), ("c.avro", False),
    ]  # fmt: skip
    (below,) = place.store.entries(entries[0].path)
    assert below.name == "2"
    path = entries[2].path  # a file holds itself
    assert place.store.entries(path) == [Entry("c.avro", path, is_folder=False)]
    for look in (place.store.entries, place.store.open):
        with pytest.raises(ConfigError, match=r"nope.* does not exist"):
            look(f"{place.root}/nope")


def test_files_of_all_folders_below_with_the_time_of_writing(place):
    for name in ("a/2/3.avro", "a/4.avro", "b/5.avro"):
        place.put(name, b"x")
    now_us = time.time_ns() // 1_000
    files = place.store.files_below(f"{place.root}/a")
    names = sorted(file.path.removeprefix(place.root) for file in files)
    assert names == ["/a/2/3.avro", "/a/4.avro"]
    assert all(abs(now_us - file.modified_us) < 3_600_000_000 for file in files)
    assert place.store.files_below(f"{place.root}/nothing") == []
    place.put("a/6.avro", b"x")
    assert len(place.store.files_below(f"{place.root}/a")) == 3


def test_a_file_that_keeps_its_time_when_it_is_copied_counts_from_when_it_came(tmp_path):
    came_us = time.time_ns() // 1_000
    path = tmp_path / "a.avro"
    path.write_bytes(b"x")
    os.utime(path, (1, 1))  # as `cp -p`, `rsync -t` and `aws s3 sync` do
    (file,) = LocalStore().files_below(str(tmp_path))
    assert abs(file.modified_us - came_us) < 3_600_000_000
    ahead_s = came_us // 1_000_000 + 10_000
    os.utime(path, (ahead_s, ahead_s))
    (file,) = LocalStore().files_below(str(tmp_path))
    assert file.modified_us == ahead_s * 1_000_000


@pytest.mark.parametrize(
    ("entry", "modified_us"),
    [
        ({"LastModified": datetime(2024, 1, 2, tzinfo=UTC)}, 1_704_153_600_000_000),
        ({"created": datetime(2024, 1, 2)}, 1_704_153_600_000_000),  # noqa: DTZ001 - as libraries do
        ({"updated": "2024-01-02T00:00:00.5Z", "mtime": None}, 1_704_153_600_500_000),
        ({"mtime": 1.5}, 1_500_000),
        # Of Cloud Storage, whose metadata was changed a day after the object was written.
        ({"timeCreated": "2024-01-02T00:00:00.5Z", "mtime": 1.5}, 1_704_153_600_500_000),
    ],
)
def test_times_of_writing_in_the_forms_of_libraries(entry, modified_us):
    files = SimpleNamespace(find=lambda _, detail: {"b/f": {"name": "b/f", **entry}})
    (file,) = FsspecStore(files, scheme="s3").files_below("b")
    assert file.modified_us == modified_us
    files = SimpleNamespace(find=lambda _, detail: {"b/f": {}})
    with pytest.raises(ConfigError, match="does not say when it was written"):
        FsspecStore(files, scheme="s3").files_below("b")


def test_errors_of_a_name_that_is_not_utf_8_are_text(tmp_path, monkeypatch):
    """They are served and published."""
    with open(os.fsencode(tmp_path) + b"/a\xff.avro", "wb") as file:  # noqa: PTH123 - bytes
        file.write(b"x")
    (unreadable,) = LocalStore().files_below(str(tmp_path))

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_store.Path, "open", fail)
    with pytest.raises(UnreachableError, match=r"a\\udcff\.avro cannot be read: OSError") as caught:
        LocalStore().open(unreadable.path)
    assert str(caught.value).encode()


@pytest.mark.rule("datastream-storages")
def test_a_file_is_read_and_can_seek(place):
    data = bytes(range(256)) * 10_000
    place.put("c.avro", data)
    (listed,) = place.store.entries(place.root)
    with place.store.open(listed.path) as stream:
        assert stream.read(4) == data[:4]
        stream.seek(0)
        assert stream.read() == data
        stream.seek(0)
        assert stream.readline(50) == data[:11]


def test_objects_that_stand_for_folders_are_not_files():
    listed = [
        {"name": "b/p", "type": "directory"}, {"name": "b/p/", "type": "file"},
        {"name": "b/p/o/", "type": "directory"}, {"name": "b/p/f.avro", "type": "file"},
    ]  # fmt: skip
    store = FsspecStore(SimpleNamespace(ls=lambda *_, **__: listed), scheme="gs")
    assert store.entries("b/p") == [
        Entry("f.avro", "b/p/f.avro", is_folder=False), Entry("o", "b/p/o", is_folder=True),
    ]  # fmt: skip


def test_errors_of_libraries_do_not_leave():
    def fail(*_, **__):
        raise RuntimeError("timed out")

    broken = SimpleNamespace(read=fail, close=lambda: None)
    store = FsspecStore(SimpleNamespace(ls=fail, find=fail, open=fail), scheme="s3")
    for look in (store.entries, store.files_below, store.open):
        with pytest.raises(UnreachableError, match="s3://b/p cannot be read: RuntimeError"):
            look("b/p")
    late = FsspecStore(SimpleNamespace(open=lambda *_, **__: broken), scheme="s3")
    with pytest.raises(UnreachableError, match="timed out"):
        late.open("b/p").read(1)


@pytest.mark.parametrize("start", ["", "file://"])
def test_a_local_location_needs_no_extra(tmp_path, monkeypatch, start):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    store, root = open_location(f"{start}{tmp_path}")
    assert isinstance(store, LocalStore)
    assert store.entries(root) == []


@pytest.mark.parametrize("location", ["\0", "a\0b", "\ud800"])
def test_a_text_that_is_not_a_path_is_refused_and_can_be_printed(location):
    store, root = open_location(location)
    for look in (store.entries, store.open):
        with pytest.raises(ConfigError, match="is not a path") as caught:
            look(root)
        assert str(caught.value).encode()


@pytest.mark.rule("datastream-storages")
@pytest.mark.parametrize(("scheme", "extra"), [("gs", "gcs"), ("s3", "s3")])
def test_a_missing_extra_is_named(monkeypatch, scheme, extra):
    monkeypatch.setattr("tidegate.program.extras.is_installed", lambda _name: False)
    with pytest.raises(ConfigError, match=rf'pip install "tidegate\[{extra}\]"'):
        open_location(f"{scheme}://bucket/path")


@pytest.mark.parametrize("location", ["hdfs://x/y", "gs://", "s3:///", "http://x"])
def test_other_locations_are_refused(location):
    with pytest.raises(ConfigError, match=r"--datastream: .* Give "):
        open_location(location)


def test_what_another_program_writes_is_seen_at_once(place):
    place.put("a/1.avro", b"x")
    assert [entry.name for entry in place.store.entries(place.root)] == ["a"]
    assert len(place.store.files_below(place.root)) == 1
    place.put("b/1.avro", b"x")
    place.put("a/1.avro", b"longer")
    assert [entry.name for entry in place.store.entries(place.root)] == ["a", "b"]
    assert len(place.store.files_below(place.root)) == 2
    with place.store.open(f"{place.root}/a/1.avro") as stream:
        assert stream.read() == b"longer"
    place.remove("a/1.avro")
    with pytest.raises(PathMissing):
        place.store.open(f"{place.root}/a/1.avro")
    assert len(place.store.files_below(place.root)) == 1


def test_a_location_that_is_gone_is_not_an_empty_one(place):
    place.put("o/1.avro", b"x")
    assert place.store.files_below(f"{place.root}/nothing") == []
    place.vanish()
    for folder in (place.root, f"{place.root}/o", f"{place.root}/nothing"):
        with pytest.raises(LocationGone, match=r"^source\.location: .* is gone") as raised:
            place.store.files_below(folder)
        assert raised.value.retriable


@pytest.mark.parametrize("location", ["{}/nothing", "~no-such-user-here/nothing"])
def test_a_location_that_does_not_exist_is_named_with_its_setting(tmp_path, location):
    store, folder = open_location(location.format(tmp_path), setting="source.location")
    with pytest.raises(PathMissing, match=r"^source\.location: .*/nothing does not exist"):
        store.entries(folder)


def test_a_folder_that_is_removed_while_it_is_listed_hides_no_other_one(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / "hour" / name).mkdir(parents=True)
        (tmp_path / "hour" / name / "1.avro").write_bytes(b"x")
    real, opened = os.scandir, []

    def scandir(place):
        opened.append(str(place))
        if len(opened) == 2:
            shutil.rmtree(opened[1])
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    store = LocalStore(location=str(tmp_path), setting="source.location")
    assert len(store.files_below(f"{tmp_path}/hour")) == 2


def test_a_location_without_access_is_named_with_what_to_grant(place):
    place.put("o/1.avro", b"x")
    for look in (
        lambda: place.store.entries(place.root),
        lambda: place.store.files_below(place.root),
        lambda: place.store.open(f"{place.root}/o/1.avro").read(),
    ):
        with place.denying(), pytest.raises(ConfigError, match=r"^source\.location: ") as raised:
            look()
        assert "may not be read" in str(raised.value)
        assert raised.value.hint.startswith("Grant this principal")
        assert SECRET not in str(raised.value)
        look()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ((401, "Anonymous caller does not have access"), ConfigError, "no credentials.*GOOGLE_APP"),
        ((400, "Bucket is a requester pays bucket"), ConfigError, "requesters pay"),
        ((409, "a conflict"), UnreachableError, "a conflict"),
    ],
)
@pytest.mark.parametrize("place", ["gcs"], indirect=True)
def test_what_gcs_answers_is_said_in_one_error(place, logless, error, kind, text):
    place.put("o/1.avro", b"x")
    with place.server.failing(*error):
        for look in (place.store.entries, place.store.files_below):
            with pytest.raises(kind, match=text):
                look(place.root)
    assert logless.readouterr().err == ""


def test_an_s3_server_that_is_gone_is_one_that_does_not_answer(monkeypatch):
    with s3_server() as server:
        place = BucketPlace(server, monkeypatch)
    with pytest.raises(UnreachableError, match=r"s3://bucket-.*cannot be read") as raised:
        place.store.entries(place.root)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_credentials_in_a_location_are_refused_and_not_repeated(scheme):
    with pytest.raises(ConfigError, match="has no @") as raised:
        open_location(f"{scheme}://AKIA:{SECRET.replace('/', '')}@bucket/path")
    assert "AKIA" not in str(raised.value)


def test_little_of_an_open_file_is_held(place):
    data = bytes(range(256)) * 64 * 1_024
    place.put("o/1.avro", data)
    with place.store.open(f"{place.root}/o/1.avro") as stream:
        assert stream.read(10) == data[:10]
        held = getattr(stream.raw._raw, "cache", None)
        assert held is None or len(held.cache) <= 6 << 20
        assert stream.read() == data[10:]


NoCredentialsError = type("NoCredentialsError", (Exception,), {})
RefreshError = type("RefreshError", (Exception,), {})
HttpError = type("HttpError", (Exception,), {"code": 401})


@pytest.mark.parametrize(
    ("error", "scheme", "kind", "text"),
    [
        (FileNotFoundError("x"), "s3", PathMissing, "set: s3://b/p does not exist. Check"),
        (PermissionError("no\nright."), "s3", ConfigError, "may not be read: no right. Grant.*s3:"),
        (OSError("Forbidden: b/o\nno right"), "gs", ConfigError, "Grant.*objectViewer"),
        (PermissionError("no"), "", ConfigError, "Grant this principal read access"),
        (OSError("Forbidding"), "gs", UnreachableError, "OSError: Forbidding. Run it again"),
        (NoCredentialsError("x"), "s3", ConfigError, "no credentials.*AWS_ACCESS_KEY_ID"),
        (HttpError("anonymous"), "gs", ConfigError, "no credentials.*GOOGLE_APPLICATION"),
        (RefreshError("invalid_grant: revoked"), "gs", ConfigError, "no credentials"),
        (RefreshError("Unable to acquire: 503", "<html>"), "gs", UnreachableError, "RefreshError"),
        (RefreshError("429: slow down"), "gs", UnreachableError, "429: slow down. Run it again"),
        (ValueError("it is requester pays"), "gs", ConfigError, "requesters pay"),
        (ValueError("\0"), "", ConfigError, "is not a path"),
        (ValueError("x"), "gs", UnreachableError, "ValueError: x"),
        (TimeoutError("y" * 10_000), "s3", UnreachableError, "TimeoutError: y{300}. Run"),
    ],
)
def test_it_says_what_and_what_to_do(error, scheme, kind, text):
    with pytest.raises(kind, match=text) as raised:
        refuse(error, "s3://b/p", scheme=scheme, setting="set")
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error
    assert raised.value.retriable is (kind is UnreachableError)


NAMES = (
    "shop_orders/2023/12/31/23/59/a.avro",
    "shop_orders/2024/01/01/00/00/a.avro",
    "shop_orders/2024/01/01/00/00/b.avro",
    "shop_orders/2024/01/01/00/01/a.jsonl.gz",
    "shop_users/2024/01/01/00/00/a.avro",
)


class Counting(LocalStore):
    """Counts the folders that were listed."""

    def __init__(self):
        self.listed = 0

    def entries(self, folder):
        self.listed += 1
        return super().entries(folder)


@pytest.fixture
def tree(tmp_path):
    for name in (*NAMES, "shop_users/2024/01/01/00/00/_SUCCESS", ".hidden/2024/x.avro"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def below(tree, files):
    return [file.path.removeprefix(f"{tree}/") for file in files]


def test_the_folder_of_one_object_and_one_with_files_are_themselves(tree):
    one = str(tree / NAMES[0])
    for folder in (str(tree / "shop_orders"), str(tree / "shop_users/2024/01/01/00/00"), one):
        assert object_folders(LocalStore(), folder) == [folder]
    assert below(tree, newest_files(LocalStore(), one, 5)) == [NAMES[0]]


@pytest.mark.rule("datastream-folders", "datastream-objects")
def test_all_files_come_the_oldest_first(tree):
    """Objects are the folders of a stream."""
    store = LocalStore()
    found = [
        name
        for folder in object_folders(store, str(tree))
        for name in below(tree, all_files(store, folder))
    ]
    assert found == list(NAMES)


@pytest.mark.rule("datastream-folders")
def test_the_newest_files_come_first_and_older_folders_are_not_listed(tree):
    store = Counting()
    found = newest_files(store, str(tree / "shop_orders"), 1)
    assert below(tree, found) == [NAMES[3]]
    assert store.listed == 6  # the object, and one folder for each part of the time
    assert below(tree, newest_files(store, str(tree / "shop_orders"), 9)) == list(NAMES[3::-1])


FIELDS = [PayloadField("id", "LONG", nullable=True), PayloadField("note", "STRING", nullable=True)]


def events(records, file="a.avro"):
    return [parse_event(one, Position(file, n)) for n, one in enumerate(records, 1)]


@pytest.fixture
def inventory():
    return Inventory()


@pytest.mark.rule("datastream-discover")
@pytest.mark.parametrize("source", SOURCES)
def test_an_object_has_fields_key_and_counts(inventory, source):
    rng = random.Random(7)
    inventory.add(FIELDS, events(history(source, rng, 5)))
    inventory.add(FIELDS, events(backfill(source, rng, 3)))
    (found,) = inventory.objects()
    assert inventory.source.value == source
    assert inventory.streams == {"projects/1/locations/us-central1/streams/orders"}
    assert found.fields == (
        SourceField("id", "LONG", nullable=True, key_position=1),
        SourceField("note", "STRING", nullable=True),
    )
    assert found.key == ("id",)
    assert found.files_read == 2
    assert sum(found.events.values()) == 8
    assert not inventory.types_are_inferred


@pytest.mark.rule("datastream-object-names")
def test_names_are_those_of_the_source_where_datastreams_are_ambiguous(inventory):
    records = history("mysql", random.Random(7), 2)
    records[0]["source_metadata"].update(database="a", table="b_c")
    records[1]["source_metadata"].update(database="a_b", table="c")
    for record in records:
        record["object"] = "a_b_c"
    inventory.add(FIELDS, events(records))
    assert [one.name for one in inventory.objects()] == ["a.b_c", "a_b.c"]


@pytest.mark.rule("datastream-discover")
@pytest.mark.parametrize("is_newest_first", [True, False])
def test_the_newest_event_decides_fields_and_key(inventory, is_newest_first):
    old, new = history("mysql", random.Random(7), 2)
    new["source_metadata"]["primary_keys"] = ["note", "id"]
    files = [(FIELDS[:1], events([old])), (FIELDS, events([new]))]
    for fields, found in reversed(files) if is_newest_first else files:
        inventory.add(fields, found)
    assert inventory.objects()[0].key == ("note", "id")
    assert len(inventory.objects()[0].fields) == 2


@pytest.mark.rule("datastream-json-values")
def test_types_of_json_are_inferred_and_it_is_said(inventory):
    records = [json.loads(line) for line in json_bytes(history("mysql", random.Random(7), 2))
               .splitlines()]  # fmt: skip
    records[0]["payload"] = {"id": 1, "note": None, "flag": True, "doc": {"a": 1}, "mixed": 1}
    records[1]["payload"] = {"id": 2, "note": "x", "mixed": "1"}
    inventory.add(None, events(records))
    assert inventory.types_are_inferred
    found = [(one.name, one.type, one.nullable) for one in inventory.objects()[0].fields]
    assert found == [
        ("id", "LONG", None), ("note", "STRING", True), ("flag", "BOOLEAN", None),
        ("doc", "JSON", None), ("mixed", "LONG or STRING", None),
    ]  # fmt: skip


@pytest.mark.rule("datastream-one-source")
def test_two_kinds_of_sources_are_refused(inventory):
    inventory.add(FIELDS, events(history("mysql", random.Random(7), 1)))
    with pytest.raises(MixedSources, match=r"mysql and of oracle.*b\.avro.*record=1"):
        inventory.add(FIELDS, events(history("oracle", random.Random(7), 1), "b.avro"))


@pytest.mark.rule("datastream-one-source")
def test_two_logs_of_mysql_are_refused(inventory):
    records = history("mysql", random.Random(7), 2)
    records[1]["source_metadata"]["log_file"] = "replica-bin.000001"
    del records[1]["sort_keys"]
    with pytest.raises(MixedSources, match=r"two binary logs.*mysql-bin.*replica-bin"):
        inventory.add(FIELDS, events(records))
