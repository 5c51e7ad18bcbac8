"""Local folders and buckets of S3 and GCS: what they hold, and what is said of what is not read."""

import io
import logging
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tests.buckets import SECRET, s3_server
from tests.file_places import BucketPlace
from tidegate.producer.datastream import file_store
from tidegate.producer.datastream.file_store import (
    Entry,
    FsspecStore,
    LocalStore,
    open_location,
)
from tidegate.producer.datastream.store_errors import LocationGone, PathMissing
from tidegate.schemas.errors import ConfigError, UnreachableError


@pytest.fixture
def logless(monkeypatch, capfd):
    """Standard error of a program that has set up no logging of Python's own."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return capfd


def test_a_folder_lists_what_it_holds_by_name(place):
    for name in ("b/1.avro", "c.avro", "a/2/3.avro"):
        place.put(name, b"x")
    found = place.store.entries(place.root)
    assert [(one.name, one.is_folder) for one in found] == [
        ("a", True), ("b", True), ("c.avro", False),
    ]  # fmt: skip
    (below,) = place.store.entries(found[0].path)
    assert below.name == "2"


def test_files_of_all_folders_below_with_the_time_of_writing(place):
    for name in ("a/2/3.avro", "a/4.avro", "b/5.avro"):
        place.put(name, b"x")
    now_us = time.time_ns() // 1_000
    found = place.store.files_below(f"{place.root}/a")
    assert sorted(one.path.removeprefix(place.root) for one in found) == [
        "/a/2/3.avro",
        "/a/4.avro",
    ]
    assert all(abs(now_us - one.modified_us) < 3_600_000_000 for one in found)
    assert place.store.files_below(f"{place.root}/nothing") == []
    place.put("a/6.avro", b"x")
    assert len(place.store.files_below(f"{place.root}/a")) == 3


def test_a_file_that_keeps_its_time_when_it_is_copied_counts_from_when_it_came(tmp_path):
    came_us = time.time_ns() // 1_000
    path = tmp_path / "a.avro"
    path.write_bytes(b"x")
    os.utime(path, (1, 1))  # as `cp -p`, `rsync -t` and `aws s3 sync` do
    (found,) = LocalStore().files_below(str(tmp_path))
    assert abs(found.modified_us - came_us) < 3_600_000_000
    ahead_s = came_us // 1_000_000 + 10_000
    os.utime(path, (ahead_s, ahead_s))
    (found,) = LocalStore().files_below(str(tmp_path))
    assert found.modified_us == ahead_s * 1_000_000


@pytest.mark.parametrize(
    ("entry", "modified_us"),
    [
        ({"LastModified": datetime(2024, 1, 2, tzinfo=UTC)}, 1_704_153_600_000_000),
        ({"created": datetime(2024, 1, 2)}, 1_704_153_600_000_000),  # noqa: DTZ001 - as libraries do
        ({"updated": "2024-01-02T00:00:00.5Z", "mtime": None}, 1_704_153_600_500_000),
        ({"mtime": 1.5}, 1_500_000),
        # Of Cloud Storage, whose metadata was changed a day after the object was written.
        (
            {
                "timeCreated": "2024-01-02T00:00:00.5Z", "updated": "2024-01-03T00:00:00Z",
                "mtime": datetime(2024, 1, 3, tzinfo=UTC),
            },
            1_704_153_600_500_000,
        ),
    ],
)  # fmt: skip
def test_times_of_writing_in_the_forms_of_libraries(entry, modified_us):
    files = SimpleNamespace(find=lambda _, detail: {"b/f": {"name": "b/f", **entry}})
    (one,) = FsspecStore(files, scheme="s3").files_below("b")
    assert one.modified_us == modified_us


def test_a_store_without_times_of_writing_is_refused():
    files = SimpleNamespace(find=lambda _, detail: {"b/f": {}})
    with pytest.raises(ConfigError, match="does not say when it was written"):
        FsspecStore(files, scheme="s3").files_below("b")


def test_errors_of_a_name_that_is_not_utf_8_are_text(tmp_path, monkeypatch):
    """They are served and published."""
    with open(os.fsencode(tmp_path) + b"/a\xff.avro", "wb") as file:  # noqa: PTH123 - bytes
        file.write(b"x")
    (found,) = LocalStore().files_below(str(tmp_path))

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_store.Path, "open", fail)
    with pytest.raises(UnreachableError, match=r"a\\udcff\.avro cannot be read: OSError") as caught:
        LocalStore().open(found.path)
    assert str(caught.value).encode()


def test_errors_name_the_setting(tmp_path):
    store, folder = open_location(f"{tmp_path}/nothing", setting="source.location")
    with pytest.raises(PathMissing, match=r"^source\.location: .*/nothing does not exist"):
        store.entries(folder)


def test_a_file_holds_itself(place):
    place.put("c.avro", b"x")
    (listed,) = place.store.entries(place.root)
    assert place.store.entries(listed.path) == [Entry("c.avro", listed.path, is_folder=False)]


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


def test_what_does_not_exist_is_named(place):
    for look in (place.store.entries, place.store.open):
        with pytest.raises(ConfigError, match=r"nope.* does not exist"):
            look(f"{place.root}/nope")


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


def test_a_home_that_does_not_exist_is_a_path_that_does_not_exist():
    store, root = open_location("~no-such-user-here/x")
    with pytest.raises(ConfigError, match="no-such-user-here/x does not exist"):
        store.entries(root)


@pytest.mark.rule("datastream-storages")
@pytest.mark.parametrize(("scheme", "extra"), [("gs", "gcs"), ("s3", "s3")])
def test_a_missing_extra_is_named(monkeypatch, scheme, extra):
    monkeypatch.setattr("tidegate.program.extras.is_installed", lambda _name: False)
    with pytest.raises(ConfigError, match=rf'pip install "tidegate\[{extra}\]"'):
        open_location(f"{scheme}://bucket/path")


@pytest.mark.rule("datastream-storages")
@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_a_bucket_is_opened_through_fsspec(monkeypatch, scheme):
    opened = []
    monkeypatch.setattr("tidegate.program.extras.is_installed", lambda _name: True)
    monkeypatch.setattr(
        file_store,
        "import_module",
        lambda _: SimpleNamespace(filesystem=lambda *given, **more: opened.append((given, more))),
    )
    store, root = open_location(f"{scheme}://bucket/a/path/")
    assert opened == [((scheme,), {"use_listings_cache": False})]
    assert root == "bucket/a/path"
    assert isinstance(store, FsspecStore)


@pytest.mark.parametrize("location", ["hdfs://x/y", "gs://", "s3:///", "http://x"])
def test_other_locations_are_refused(location):
    with pytest.raises(ConfigError, match=r"--datastream: .* Give "):
        open_location(location)


def test_a_stream_of_a_library_may_return_little_at_a_time():
    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 3))

    store = FsspecStore(SimpleNamespace(open=lambda *_, **__: Slow(b"0123456789")), scheme="s3")
    with store.open("b/p") as stream:
        assert stream.read() == b"0123456789"


def test_what_another_program_writes_is_seen_at_once(place):
    place.put("a/1.avro", b"x")
    assert [one.name for one in place.store.entries(place.root)] == ["a"]
    assert len(place.store.files_below(place.root)) == 1
    place.put("b/1.avro", b"x")
    place.put("a/1.avro", b"longer")
    assert [one.name for one in place.store.entries(place.root)] == ["a", "b"]
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


def walked(monkeypatch, act):
    """Have something done before the second folder of a walk is opened."""
    real, opened = os.scandir, []

    def scandir(place):
        opened.append(str(place))
        if len(opened) == 2:
            act(opened[1])
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_folder_that_is_removed_while_it_is_listed_hides_no_other_one(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / "hour" / name).mkdir(parents=True)
        (tmp_path / "hour" / name / "1.avro").write_bytes(b"x")
    walked(monkeypatch, shutil.rmtree)
    store = LocalStore(location=str(tmp_path), setting="source.location")
    assert len(store.files_below(f"{tmp_path}/hour")) == 2


def test_a_location_that_goes_while_it_is_listed_is_gone(tmp_path, monkeypatch):
    location = tmp_path / "disk"
    for name in "ab":
        (location / "hour" / name).mkdir(parents=True)
        (location / "hour" / name / "1.avro").write_bytes(b"x")
    walked(monkeypatch, lambda _: location.rename(tmp_path / "unmounted"))
    store = LocalStore(location=str(location), setting="source.location")
    with pytest.raises(LocationGone, match=r"^source\.location: .* is gone"):
        store.files_below(f"{location}/hour")


def test_a_location_without_access_is_named_with_what_to_grant(place):
    place.put("o/1.avro", b"x")
    looks = (
        lambda: place.store.entries(place.root),
        lambda: place.store.files_below(place.root),
        lambda: place.store.open(f"{place.root}/o/1.avro").read(),
    )
    for look in looks:
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
