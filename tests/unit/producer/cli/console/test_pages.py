"""The pages: what each shows of a stream in every state; no text in them is taken as HTML."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.unit.producer.cli.console.conftest import (
    ASKED,
    FLEET,
    NOT_STARTED,
    NOW_US,
    RUNNING,
    SECOND_US,
    Console,
    failed,
    life,
)
from tidegate.producer.cli.console.board import ConsumerFigures, SinkTimes
from tidegate.producer.cli.console.change_search import FoundChange, Search
from tidegate.producer.cli.console.releases import Audit
from tidegate.producer.cli.dead_letters import DeadLetterReport, ListedGroup
from tidegate.producer.cli.status import BackfillProgress
from tidegate.producer.cli.stream_states import StreamState
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ControlState, PartitionGap, StreamControl

PATHS = ("/", "/partitions", "/workers", "/parked", "/releases", "/change")
EMPTY_TAGS = {"meta", "link", "input", "line", "rect", "path"}


class Checker(HTMLParser):
    """Checks that elements are closed in order, ids occur once, and fields have labels."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.labels, self.fields = [], [], set(), set()
        self.text = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in EMPTY_TAGS:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "label":
            self.labels.add(given["for"])
        if tag in ("input", "select"):
            self.fields.add(given["id"])
        assert "style" not in given, "the policy forbids it"
        assert not any(name.startswith("on") for name in given)

    def handle_endtag(self, tag):
        if tag not in EMPTY_TAGS:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text_of(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert checker.fields <= checker.labels
    return " ".join(" ".join(checker.text).split())


@pytest.fixture
def output(tmp_path):
    """An output with two releases."""
    folder = tmp_path / "_releases"
    folder.mkdir()
    for number in range(2):
        content = {
            "release": number, "query_id": "q", "batch": number,
            "after_us": NOW_US - (20 - number * 10) * SECOND_US,
            "through_us": NOW_US - (10 - number * 10) * SECOND_US,
            "rows": 5 + number,
            "tables": {
                "Accounts": {"changelog": {"path": "changelog/Accounts", "version": number}}
            },
        }  # fmt: skip
        (folder / f"{number:012d}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "status",
    [None, NOT_STARTED, RUNNING, ASKED, failed(), replace(RUNNING, members=())],
    ids=["unknown", "not started", "running", "asked", "failed", "no workers"],
)
def test_every_page_shows_every_state(console, path, status):
    if status is not None:
        console.show(status, lives=[life("slow"), life("quick", slot=1)])
    found = text_of(console.page(path))
    if status is None:
        assert "Reading the progress topic" in found
    else:
        assert status.state.value in found
    assert "<it>" not in found or path == "/workers"


def test_the_overview_has_the_figures_of_the_stream(console):
    console.show(ASKED)
    found = text_of(console.page("/"))
    assert "3.0 s watermark lag" in found
    assert "1,234 changes a second" in found
    assert "2.0 h until unpublished changes expire" in found
    assert "Watermark lag now 3 s, at most 3 s" in found
    assert "Changes published now 102 a second, at most 120 a second" in found


def test_a_stopped_stream_partition_is_shown_with_what_to_do(console):
    console.show(failed())
    page = console.page("/")
    assert "the &lt;view&gt; is gone" in page
    assert "Stopped stream partitions" in text_of(page)
    assert "Remove the cause" in text_of(page)


def test_a_pause_names_who_paused(console):
    control = StreamControl(number=1, state=ControlState.PAUSED, by="ann <ops>", at_us=NOW_US)
    fleet = replace(FLEET, control=control)
    console.show(replace(RUNNING, fleet=fleet, state=StreamState.DRAINING))
    assert "Paused by ann <ops> at 2023-11-14 22:13:20 UTC" in text_of(console.page("/"))
    assert "Last command: " in text_of(console.page("/workers"))


def test_gaps_and_a_backfill_are_on_the_overview(console):
    gaps = (PartitionGap("slow", NOW_US, NOW_US + 1, "ann", NOW_US),)
    console.show(
        replace(RUNNING, fleet=replace(FLEET, gaps=gaps), backfill=BackfillProgress(100, 40, 9.0))
    )
    found = text_of(console.page("/"))
    assert "Accepted gaps" in found
    assert "40 of 100 rows are published; about 9.0 s are left" in found


def test_a_look_that_failed_is_named_and_the_old_figures_stay(console):
    console.show(RUNNING)
    console.board.fault, console.board.output_fault = "no <broker>", "no disk"
    found = text_of(console.page("/"))
    assert "Kafka cannot be read no <broker>" in found
    assert "The figures below are those of 2023-11-14 22:13:20 UTC" in found
    assert "The output cannot be read no disk" in found
    assert "1,234 changes a second" in found


def test_workers_show_slots_and_what_they_retry(console):
    console.show(ASKED)
    page = console.page("/workers")
    assert "&lt;it&gt; broke" in page
    found = text_of(page)
    assert "QueryError UNAVAILABLE" in found
    assert "h:2 refused" in found


def test_a_slot_shows_its_stream_partitions_only(console):
    console.show(RUNNING, lives=[life("slow"), life("quick", slot=1)])
    found = text_of(console.page("/partitions", slots="1", minutes="5"))
    assert "of slots 1-1" in found
    assert "quick" in found
    assert "slow" not in found.partition("The slowest that")[2]
    assert text_of(console.page("/partitions", slots="<x>", minutes="9")) == text_of(
        console.page("/partitions")
    )


def test_releases_have_sizes_tables_and_the_last_audit(output):
    console = Console(str(output))
    console.board.reader.refresh()
    console.show(RUNNING)
    console.board.audit = Audit(NOW_US, is_proved=False, release=1, changes=11, mismatches=2)
    console.board.consumer = ConsumerFigures(
        delays=(("1 s", 3.0), ("more", 1.0)), sinks=(SinkTimes("changelog", 1, 2, 11, 3.0),)
    )
    found = text_of(console.page("/releases"))
    assert "Last audit: NOT proved 11 changes up to release 1" in found
    assert "changelog 1 2 11 1.5 s" in found
    assert "Accounts changelog changelog/Accounts 1 1" in found
    assert "From commit to release" in found
    assert "1 newest release" in text_of(console.page("/"))


def test_without_an_output_the_page_says_what_to_give(console):
    assert "--output" in text_of(console.page("/releases"))


def test_parked_changes_are_listed_by_reason(console):
    group = ListedGroup(
        "NoTypeError", "Accounts", None, 3, "2024-01-01T00:00:00Z", None, "a <value> is too long",
        "tok", "row 7", 0, 5, "Widen the column",
    )  # fmt: skip
    console.letters = DeadLetterReport("t-dead-letter", 3, (group,), 0)
    page = console.page("/parked")
    assert "a &lt;value&gt; is too long" in page
    assert "3 records in t-dead-letter" in text_of(page)
    assert "Widen the column" in text_of(page)


def test_the_changes_of_a_key_have_their_release(output):
    console = Console(str(output))
    console.board.reader.refresh()
    console.show(RUNNING)
    changes = tuple(
        FoundChange(
            b"", NOW_US - behind_s * SECOND_US, "tx", "0", 0, "UPDATE", 3, 17, NOW_US,
            is_redriven=False, values='{"a": "<b>"}',
        )
        for behind_s in (15, 5, -1)
    )  # fmt: skip
    console.found = Search("t.Accounts", changes, 99, is_cut=True)
    page = console.page("/change", table=" Accounts ", key='"x"', hours="6")
    found = text_of(page)
    assert console.searched == [("Accounts", '"x"', 6.0)]
    assert "&lt;b&gt;" in page
    assert "3 changes of this key in t.Accounts" in found
    assert "99 records were read, and the search ended before the topic's end" in found
    assert "3 17 2023-11-14 22:13:20 0, of" in found
    assert "3 17 2023-11-14 22:13:20 1, of" in found
    assert "none yet, or not known" in found


def test_a_search_that_fails_shows_why(console):
    console.found = ConfigError("key: no <such> column", hint="Give all")
    page = console.page("/change", table="Accounts", key="<k>")
    assert "key: no &lt;such&gt; column" in page
    assert 'value="&lt;k&gt;"' in page


@pytest.mark.parametrize(
    ("path", "query"), [("/change", {"table": "Accounts", "key": "7"}), ("/parked", {})]
)
def test_a_page_that_reads_kafka_does_not_refresh_itself(console, path, query):
    console.show(RUNNING)
    page = console.page(path, **query)
    refreshed = re.search(r'data-refresh-path="([^"]*)"', page)[1]
    console.searched.clear()
    console.letters = None
    assert 'id="head"' in console.page(refreshed)
    assert console.searched == []
    assert refreshed != "/parked"


def test_other_pages_refresh_themselves(console):
    console.show(RUNNING)
    for path in ("/", "/partitions", "/workers", "/releases"):
        assert 'data-refresh-path=""' in console.page(path)


@pytest.mark.parametrize("slots", ["9" * 5_000, "1-" + "9" * 5_000, "-", "x", "3-x"])
def test_slots_that_are_no_numbers_of_slots_select_nothing(console, slots):
    console.show(RUNNING)
    assert "<h1>Stream partitions</h1>" in console.page("/partitions", slots=slots)
