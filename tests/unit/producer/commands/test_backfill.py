"""A request is written where the fleet can take it up, and again where it did not."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tidegate.lineage.partition_history import PartitionHistory
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunPlace, chunk_token, wait_token
from tidegate.producer.commands import backfill as command
from tidegate.producer.commands.backfill import BackfillReport, change_backfill, start_backfill
from tidegate.producer.commands.command_rules import Command
from tidegate.producer.datastream_source.description import FILES_DIALECT
from tidegate.producer.errors import CommandNotWritten, CommandRefused
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ChildPartition, TokenSnapshot
from tidegate.schemas.topics import TopicNames

NOW_US = 1_700_000_000_000_000


def snapshot(token, watermark_us, *, stopped=None):
    return TokenSnapshot(token, 0, (), (), watermark_us, number=1, stopped=stopped)


class Fleet:
    """A fleet's records, and a topic of requests; `on_wait` is what happens while one waits."""

    def __init__(self):
        self.now_s = 0.0
        self.tokens = {"a": NOW_US - 9, "b": NOW_US - 5, "tidegate-backfill/rest": NOW_US}
        self.stopped = set()
        self.filters = ()
        self.dialect = "POSTGRESQL"
        self.end_ns = None
        self.history = PartitionHistory(epoch="e")
        self.requests = TableRequests()
        self.written = []
        self.on_wait = []
        self.before_write = []
        """What another command has written since this one has read the requests."""
        self.refuses = None
        self.asked = []

    def require(self, asked, _records, members):
        """Answer what the stream's state permits."""
        assert members == ["w"]
        self.asked.append(asked)
        if asked is self.refuses:
            raise CommandRefused(asked.value, "Paused", hint="Resume it")

    def members(self):
        return ["w"]

    def read(self):
        tokens = {
            token: snapshot(token, at_us, stopped="x" if token in self.stopped else None)
            for token, at_us in self.tokens.items()
        }
        slots = (SimpleNamespace(tokens=tokens), SimpleNamespace(tokens=None))
        return SimpleNamespace(
            view=SimpleNamespace(slots=slots), history=self.history,
            started=SimpleNamespace(
                filters=self.filters, dialect=self.dialect, end_ns=self.end_ns
            ),
        )  # fmt: skip

    def wait(self, seconds):
        self.now_s += seconds
        if self.on_wait:
            self.on_wait.pop(0)()

    def close(self):
        pass

    def write(self, _topic, prepare, *, transactional_id, **_where):
        assert transactional_id == "bank-fleet-_backfill"
        while self.before_write:
            self.add(self.before_write.pop(0))
        request = prepare(self.requests)
        self.add(request)
        return request

    def add(self, request):
        self.written.append(request)
        self.requests.add(request)

    def announce(self, run, *, table="Users", where=None, ends=False, failure=""):
        """Let the fleet begin a run, as it was asked for, and read its only chunk."""
        request = self.requests.newest(table)
        known = "" if request is None else request.where
        place = RunPlace(run, table, where=known if where is None else where)
        tokens = [wait_token(place), chunk_token(place.chunk(5, rows=9))]
        tokens += [wait_token(place.chunk(5, rows=9).failed(failure))] if failure else []
        self.history._add([ChildPartition(one, (), 0) for one in tokens])
        for token in tokens if ends else tokens[:1]:
            self.history._known[token].end_ns = 7


@pytest.fixture
def fleet(monkeypatch):
    fleet = Fleet()
    monkeypatch.setattr(command, "FleetReader", lambda _config: fleet)
    monkeypatch.setattr(command, "require_command", fleet.require)
    monkeypatch.setattr(
        command, "read_requests", lambda *_, **__: TableRequests(fleet.requests.all)
    )
    monkeypatch.setattr(command, "write_request", fleet.write)
    visible = frozenset({"bank.Users", "bank.Old", "bank.Old__backfill", "bank-progress"})
    monkeypatch.setattr(command, "list_topics", lambda *_: visible)
    monkeypatch.setattr(command, "KafkaTopics", lambda *_, **__: Topics())
    monkeypatch.setattr(command, "_now_us", lambda: NOW_US)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: fleet.now_s))
    return fleet


class Topics:
    def ensure_backfills(self, topic, *, replication):
        assert (topic, replication) == ("bank-backfill-requests", 1)


CONFIG = SimpleNamespace(
    topic_names=TopicNames("bank"), bootstrap_servers="k:1", replication_factor=1,
    kafka_client_options=dict, database_path="d", emulator_host="s:1", database_role="",
    spanner_endpoint="s:2", credentials_file=None, change_stream="Feed",
)  # fmt: skip


@pytest.fixture
def checked(fleet, monkeypatch):
    """Conditions that Spanner was asked for; `error` is what it says."""
    checked = SimpleNamespace(asked=[], error=None)

    def check(channels, **asked):
        checked.asked.append((channels.database, asked))
        if checked.error is not None:
            raise checked.error

    monkeypatch.setattr(command, "require_condition", check)
    return checked


def start(**options):
    return start_backfill(CONFIG, "Users", **{"chunk_rows": 9, "share": 30, "by": "ada"} | options)


def test_a_run_begins_ahead_of_the_newest_stream_partition_that_goes_on(fleet):
    fleet.on_wait = [lambda: fleet.announce(1)]
    report = start()

    assert fleet.written == [
        TableRequest("Users", 1, "b", NOW_US + 5_000_000, RunState.RUNNING, 9, 30, "ada", NOW_US)
    ]
    assert report == BackfillReport("Users", 1, "running", chunks=1)
    assert json.loads(report.as_json())["is_taken_up"] is True


@pytest.mark.parametrize("passes", ["time", "end"])
def test_a_run_that_no_worker_knew_of_in_time_is_asked_for_again(fleet, passes):
    def miss():
        if passes == "time":
            fleet.tokens["b"] = fleet.written[-1].start_us
        else:
            del fleet.tokens["b"]
            fleet.history._known["b"].end_ns = 7

    fleet.history._add([ChildPartition(one, (), 0) for one in ("a", "b")])
    fleet.on_wait = [lambda: None, miss, lambda: None, lambda: fleet.announce(2)]
    report = start()

    assert [one.run for one in fleet.written] == [1, 2]
    assert fleet.written[1].start_us > fleet.written[0].start_us
    assert fleet.written[1].parent == ("b" if passes == "time" else "a")
    assert (report.run, report.is_taken_up) == (2, True)


def test_an_announcement_that_is_read_after_its_parents_progress_counts(fleet):
    def pass_it():
        fleet.tokens["b"] = fleet.written[-1].start_us

    fleet.on_wait = [pass_it, lambda: fleet.announce(1)]

    assert start().run == 1
    assert len(fleet.written) == 1


def test_a_parent_that_no_heartbeat_names_for_a_moment_is_waited_for(fleet):
    fleet.history._add([ChildPartition("b", (), 0)])
    fleet.on_wait = [lambda: fleet.tokens.pop("b"), lambda: None, lambda: fleet.announce(1)]

    assert start().run == 1


def test_a_run_of_another_table_with_the_same_number_is_not_taken_for_it(fleet):
    """Two commands that read the requests at the same time choose the same number."""
    fleet.on_wait = [lambda: fleet.announce(1, table="Old")]

    assert start(wait_s=3.0) == BackfillReport("Users", 1, "waiting", 0, is_taken_up=False)


def test_a_run_that_another_command_has_replaced_is_refused(fleet, checked):
    """The other one has the same number and other rows: it is not ours, and it goes on."""

    def replace_it():
        other = {"where": "Id > 9", "by": "bob", "start_us": fleet.written[-1].start_us + 1}
        fleet.add(replace(fleet.written[-1], **other))
        fleet.announce(1)
        fleet.tokens["b"] = fleet.written[-1].start_us

    fleet.on_wait = [replace_it]
    text = r"changed the backfill of the table Users meanwhile \(run 1, running, bob\)"
    with pytest.raises(ConfigError, match=text):
        start(where="Id > 7")
    assert [one.where for one in fleet.written] == ["Id > 7", "Id > 9"]


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.CANCELLED])
def test_a_run_that_was_ended_before_it_was_taken_up_is_not_asked_for_again(fleet, state):
    def end_it():
        change_backfill(CONFIG, "Users", state, by="bob")
        fleet.tokens["b"] = fleet.written[0].start_us

    fleet.on_wait = [end_it]
    text = rf"changed the backfill of the table Users meanwhile \(run 1, {state}, bob\)"
    with pytest.raises(ConfigError, match=text):
        start()
    assert [(one.run, one.state) for one in fleet.written] == [(1, RunState.RUNNING), (1, state)]


def test_a_later_run_is_later_than_every_chunk_so_far(fleet):
    """Whatever the clock of the worker said that read it."""
    read_us = NOW_US + 60_000_000
    chunk = RunPlace(1, "Old").chunk(read_us * 1_000, rows=9)
    fleet.history._add([ChildPartition(chunk_token(chunk), (), 0)])
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()

    assert fleet.written[0].start_us == read_us + 5_000_000


def test_what_the_fleet_does_not_take_up_in_time_is_said(fleet):
    report = start(wait_s=3.0)

    assert report == BackfillReport("Users", 1, "waiting", 0, is_taken_up=False)


def test_a_stopped_stream_partition_announces_nothing(fleet):
    fleet.stopped.add("b")
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()

    assert fleet.written[0].parent == "a"


def test_a_fleet_that_reads_nothing_is_named(fleet):
    fleet.tokens = {"tidegate-backfill/rest": NOW_US}
    with pytest.raises(ConfigError, match="no stream partition of the change stream is read"):
        start()


@pytest.mark.parametrize("table", ["Missing", "Old__backfill"])
def test_a_table_that_is_not_published_is_named_with_those_that_are(fleet, table):
    with pytest.raises(ConfigError, match=f"does not publish the table {table}") as caught:
        start_backfill(CONFIG, table, chunk_rows=9, share=30)
    assert caught.value.hint == "It publishes Old, Users"


def test_a_template_that_makes_the_topic_a_tables_is_refused(fleet):
    names = TopicNames("bank", "{prefix}-backfill-{table}")
    config = SimpleNamespace(**{**vars(CONFIG), "topic_names": names})
    with pytest.raises(ConfigError, match="bank-backfill-requests is the topic of a table"):
        start_backfill(config, "Users", chunk_rows=9, share=30)


def test_a_stream_without_inserts_takes_no_rows(fleet):
    fleet.filters = ("producer.mod_types=UPDATE,DELETE",)
    with pytest.raises(ConfigError, match="leaves INSERTs out"):
        start()


def test_a_stream_of_files_has_no_table_to_read(fleet):
    fleet.dialect = FILES_DIALECT
    with pytest.raises(ConfigError, match="no tables that can be read"):
        start()


def test_a_run_that_the_end_of_the_stream_cut_off_is_not_done(fleet):
    """Stream partitions finish at the stream's end, also those of a run that has rows left."""
    fleet.end_ns = (NOW_US + 60_000_000) * 1_000
    fleet.on_wait = [lambda: fleet.announce(1)]
    assert start().state == "running"

    for token in fleet.history.known:
        fleet.history._known[token].end_ns = fleet.end_ns
    report = change_backfill(CONFIG, "Users", None)
    assert (report.state, report.cause) == ("failed", "the stream ended before the table was read")


def test_a_run_that_could_only_begin_behind_the_end_of_the_stream_is_refused(fleet):
    fleet.end_ns = (NOW_US + 3_000_000) * 1_000
    with pytest.raises(ConfigError, match=r"the stream ends at 2023-11-14T22:13:23Z, before"):
        start()
    assert fleet.written == []


def test_a_run_that_goes_on_is_not_begun_again(fleet):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    with pytest.raises(ConfigError, match=r"goes on \(run 1\)"):
        start()


@pytest.mark.parametrize("is_taken_up", [True, False])
def test_a_request_whose_answer_was_lost_is_looked_at_and_asked_for_again(
    fleet, monkeypatch, is_taken_up
):
    def unanswered(*args, **options):
        fleet.write(*args, **options)
        raise CommandNotWritten("no answer", place="topic t", look="--show")

    monkeypatch.setattr(command, "write_request", unanswered)
    with pytest.raises(CommandNotWritten, match="Look with --show"):
        start()
    monkeypatch.setattr(command, "write_request", fleet.write)
    if is_taken_up:
        fleet.announce(1)
        assert change_backfill(CONFIG, "Users", None).state == "running"
        with pytest.raises(ConfigError, match=r"goes on \(run 1\)"):
            start()
    else:
        assert change_backfill(CONFIG, "Users", None).state == "waiting"
        fleet.on_wait = [lambda: fleet.announce(2)]
        assert start().run == 2
    assert len(fleet.history.known) == 2  # of one run


def test_a_run_that_has_ended_may_be_followed_by_another(fleet):
    fleet.on_wait = [
        lambda: fleet.announce(1, ends=True), lambda: None, lambda: fleet.announce(2),
    ]  # fmt: skip
    assert start().state == "done"
    assert start().run == 2


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.RUNNING, RunState.CANCELLED])
def test_a_run_is_changed(fleet, state):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    report = change_backfill(CONFIG, "Users", state, by="bob")

    assert fleet.written[1] == replace(fleet.written[0], state=state, by="bob")
    assert report.state == state.value


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "running"])
def test_a_run_goes_on_with_another_share(fleet, is_stopped):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    if is_stopped:
        change_backfill(CONFIG, "Users", RunState.STOPPED)
    change_backfill(CONFIG, "Users", RunState.RUNNING, share=80, by="bob")
    change_backfill(CONFIG, "Users", RunState.STOPPED)

    shares = [(one.state, one.share) for one in fleet.written]
    assert shares[-2:] == [(RunState.RUNNING, 80), (RunState.STOPPED, 80)]
    assert {one.share for one in fleet.written[:-2]} == {30}


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.RUNNING, RunState.CANCELLED])
def test_a_newer_run_of_another_command_is_not_overwritten(fleet, state):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    other = replace(fleet.written[0], run=2, by="bob")
    fleet.before_write = [other]
    text = r"changed the backfill of the table Users meanwhile \(run 2, running, bob\)"
    with pytest.raises(ConfigError, match=text):
        change_backfill(CONFIG, "Users", state)
    assert fleet.written[1:] == [other]


def test_two_commands_do_not_start_runs_of_one_table_or_of_one_number(fleet):
    of_old, of_users = (TableRequest(name, 7, "b", NOW_US) for name in ("Old", "Users"))
    fleet.before_write = [of_old]
    fleet.on_wait = [lambda: fleet.announce(8, ends=True)]
    assert start().run == 8
    fleet.before_write = [replace(of_users, run=9)]
    with pytest.raises(ConfigError, match=r"meanwhile \(run 9"):
        start()
    assert [one.run for one in fleet.written] == [7, 8, 9]


def test_nothing_is_asked_of_a_stream_whose_state_does_not_permit_it(fleet):
    fleet.refuses = Command.BACKFILL
    with pytest.raises(CommandRefused, match="`backfill` is refused: the stream is Paused"):
        start()
    assert fleet.written == []


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (RunState.STOPPED, Command.BACKFILL_STOP),
        (RunState.RUNNING, Command.BACKFILL_RESUME),
        (RunState.CANCELLED, Command.BACKFILL_CANCEL),
    ],
)
def test_a_run_is_not_changed_where_the_state_does_not_permit_it(fleet, state, asked):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    fleet.refuses = asked
    with pytest.raises(CommandRefused, match=f"`{asked.value}` is refused"):
        change_backfill(CONFIG, "Users", state)
    assert len(fleet.written) == 1
    assert change_backfill(CONFIG, "Users", None).run == 1
    assert fleet.asked == [Command.BACKFILL, asked]


def test_how_far_it_is_is_shown_and_nothing_written(fleet):
    fleet.on_wait = [lambda: fleet.announce(1, ends=True)]
    start()

    assert change_backfill(CONFIG, "Users", None) == BackfillReport("Users", 1, "done", 1)
    assert len(fleet.written) == 1
    with pytest.raises(ConfigError, match=r"has ended \(run 1\)"):
        change_backfill(CONFIG, "Users", RunState.STOPPED)


def test_a_table_without_a_request_is_named(fleet):
    with pytest.raises(ConfigError, match="there was no request for a backfill of the table Users"):
        change_backfill(CONFIG, "Users", None)


# ---------------------------------------------------------------- a condition


def test_a_condition_is_checked_then_written(fleet, checked):
    fleet.on_wait = [lambda: fleet.announce(1)]
    report = start(where="Id > 7")

    asked = {"table": "Users", "change_stream": "Feed", "where": "Id > 7"}
    assert checked.asked == [("d", asked)]
    assert [one.where for one in fleet.written] == ["Id > 7"]
    assert (report.where, json.loads(report.as_json())["where"]) == ("Id > 7", "Id > 7")


def test_a_condition_that_spanner_does_not_take_is_not_written(fleet, checked):
    checked.error = ConfigError("--where: no")
    with pytest.raises(ConfigError, match="--where: no"):
        start(where="Id >")
    assert fleet.written == []


def test_spanner_is_not_needed_without_a_condition(fleet, checked):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()

    assert checked.asked == []


def test_a_run_keeps_its_condition_when_it_is_changed(fleet, checked):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start(where="Id > 7")
    change_backfill(CONFIG, "Users", RunState.STOPPED)

    assert fleet.written[1].where == "Id > 7"


def test_a_run_whose_condition_failed_says_why(fleet, checked):
    fleet.on_wait = [lambda: fleet.announce(1, ends=True, failure="division by zero")]
    start(where="1 / Id > 7")
    report = change_backfill(CONFIG, "Users", None)

    assert (report.state, report.cause, report.chunks) == ("failed", "division by zero", 1)
