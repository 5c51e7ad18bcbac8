"""A request is written where the fleet can take it up, and again where it did not."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tidegate.lineage.lineage_graph import PartitionHistory
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunWait
from tidegate.producer.cli import backfill as command
from tidegate.producer.cli.backfill import BackfillReport, change_backfill, start_backfill
from tidegate.producer.cli.stream_states import Command
from tidegate.producer.datastream.stream import FILES_DIALECT
from tidegate.producer.errors import CommandNotWritten, CommandRefused
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ChildPartition, TokenSnapshot
from tidegate.schemas.topics import TopicNames

NOW_US = 1_700_000_000_000_000
RUNNING, STOPPED, CANCELLED = RunState.RUNNING, RunState.STOPPED, RunState.CANCELLED
CONFIG = SimpleNamespace(
    topic_names=TopicNames("bank"), bootstrap_servers="k:1", replication_factor=1,
    kafka_client_options=dict, database_path="d", plaintext_host="s:1", database_role="",
    spanner_endpoint="s:2", credentials_file=None, spanner_ca_file=None,
    query_transport="h2", spanner_client_cert=None, spanner_client_key=None, change_stream="Feed",
)  # fmt: skip


class Fleet:
    """A fleet's records, and a topic of requests; `on_wait` is what happens while one waits."""

    def __init__(self):
        self.now_s = 0.0
        self.tokens = {"a": NOW_US - 9, "b": NOW_US - 5, "tidegate-backfill/rest": NOW_US}
        self.stopped = set()
        self.started = SimpleNamespace(filters=(), dialect="POSTGRESQL", end_ns=None)
        self.history = PartitionHistory(epoch="e")
        self.requests = TableRequests()
        self.written = []
        self.on_wait = []
        self.before_write = []
        """What another command has written since this one has read the requests."""
        self.refuses = None
        self.asked = []
        self.conditions = []
        self.condition_error = None

    def require(self, asked, _records, members):
        assert members == ["w"]
        self.asked.append(asked)
        if asked is self.refuses:
            raise CommandRefused(asked.value, "Paused", hint="Resume it")

    def check_condition(self, channels, **asked):
        self.conditions.append((channels.database, asked))
        if self.condition_error is not None:
            raise self.condition_error

    def members(self):
        return ["w"]

    def read(self):
        tokens = {
            token: TokenSnapshot(
                token, 0, (), (), at_us, number=1, stopped="x" if token in self.stopped else None
            )
            for token, at_us in self.tokens.items()
        }
        slots = (SimpleNamespace(tokens=tokens), SimpleNamespace(tokens=None))
        view = SimpleNamespace(slots=slots)
        return SimpleNamespace(view=view, history=self.history, started=self.started)

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

    def begin(self, *tokens):
        self.history._add([ChildPartition(token, (), 0) for token in tokens])

    def announce(self, run, *, table="Users", ends=False, failure=""):
        """Let the fleet begin a run, as it was asked for, and read its only chunk."""
        request = self.requests.newest(table)
        place = RunWait(run, table, where="" if request is None else request.where)
        chunk = place.chunk(5, rows=9)
        tokens = [place.token, chunk.token]
        tokens += [chunk.failed(failure).token] if failure else []
        self.begin(*tokens)
        for token in tokens if ends else tokens[:1]:
            self.history._partitions[token].end_ns = 7


@pytest.fixture
def fleet(monkeypatch):
    fleet = Fleet()
    topics = SimpleNamespace(
        ensure_backfills=lambda topic, *, replication: fleet.asked.append((topic, replication))
    )
    visible = frozenset({"bank.Users", "bank.Old", "bank.Old__backfill", "bank-progress"})
    for name, value in {
        "FleetReader": lambda _config: fleet,
        "require_command": fleet.require,
        "read_requests": lambda *_, **__: TableRequests(fleet.requests.all),
        "write_request": fleet.write,
        "list_topics": lambda *_: visible,
        "KafkaTopics": lambda *_, **__: topics,
        "require_condition": fleet.check_condition,
        "_now_us": lambda: NOW_US,
        "time": SimpleNamespace(monotonic=lambda: fleet.now_s),
    }.items():
        monkeypatch.setattr(command, name, value)
    return fleet


def nothing():
    """Happen not."""


def start(table="Users", config=CONFIG, **options):
    return start_backfill(config, table, **{"chunk_rows": 9, "share": 30, "by": "ada"} | options)


def change(state, **options):
    return change_backfill(CONFIG, "Users", state, **options)


@pytest.fixture
def begun(fleet):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    return fleet


def changed(run, state):
    """Return the refusal of a command that another one has overtaken."""
    text = rf"changed the backfill of the table Users meanwhile \(run {run}, {state}, bob\)"
    return pytest.raises(ConfigError, match=text)


def test_a_run_begins_ahead_of_the_newest_stream_partition_that_goes_on(fleet):
    fleet.on_wait = [lambda: fleet.announce(1)]
    report = start()
    assert fleet.written == [
        TableRequest("Users", 1, "b", NOW_US + 5_000_000, RUNNING, 9, 30, "ada", NOW_US)
    ]
    assert report == BackfillReport("Users", 1, "running", chunks=1)
    assert json.loads(report.as_json())["is_taken_up"] is True
    assert fleet.asked == [Command.BACKFILL, ("bank-backfill-requests", 1)]
    assert fleet.conditions == []


@pytest.mark.parametrize("passes", ["time", "end"])
def test_a_run_that_no_worker_knew_of_in_time_is_asked_for_again(fleet, passes):
    def miss():
        if passes == "time":
            fleet.tokens["b"] = fleet.written[-1].start_us
        else:
            del fleet.tokens["b"]
            fleet.history._partitions["b"].end_ns = 7

    fleet.begin("a", "b")
    fleet.on_wait = [nothing, miss, nothing, lambda: fleet.announce(2)]
    report = start()
    assert [one.run for one in fleet.written] == [1, 2]
    assert fleet.written[1].start_us > fleet.written[0].start_us
    assert fleet.written[1].parent == ("b" if passes == "time" else "a")
    assert (report.run, report.is_taken_up) == (2, True)


@pytest.mark.parametrize("is_passed", [True, False])
def test_an_announcement_that_is_read_late_counts(fleet, is_passed):
    fleet.begin("b")
    late = [lambda: fleet.tokens.pop("b"), nothing]
    if is_passed:
        late = [lambda: fleet.tokens.update(b=fleet.written[-1].start_us)]
    fleet.on_wait = [*late, lambda: fleet.announce(1)]
    assert start().run == 1
    assert len(fleet.written) == 1


@pytest.mark.parametrize("table", [None, "Old"])
def test_what_the_fleet_does_not_take_up_in_time_is_said(fleet, table):
    """Two commands that read the requests at the same time choose the same number."""
    fleet.on_wait = [lambda: fleet.announce(1, table=table)] if table else []
    assert start(wait_s=3.0) == BackfillReport("Users", 1, "waiting", 0, is_taken_up=False)


def test_a_run_that_another_command_has_replaced_is_refused(fleet):
    """The other one has the same number and other rows: it is not ours, and it goes on."""

    def replace_it():
        other = {"where": "Id > 9", "by": "bob", "start_us": fleet.written[-1].start_us + 1}
        fleet.add(replace(fleet.written[-1], **other))
        fleet.announce(1)
        fleet.tokens["b"] = fleet.written[-1].start_us

    fleet.on_wait = [replace_it]
    with changed(1, RUNNING):
        start(where="Id > 7")
    assert [one.where for one in fleet.written] == ["Id > 7", "Id > 9"]


@pytest.mark.parametrize("state", [STOPPED, CANCELLED])
def test_a_run_that_was_ended_before_it_was_taken_up_is_not_asked_for_again(fleet, state):
    def end_it():
        change(state, by="bob")
        fleet.tokens["b"] = fleet.written[0].start_us

    fleet.on_wait = [end_it]
    with changed(1, state):
        start()
    assert [(one.run, one.state) for one in fleet.written] == [(1, RUNNING), (1, state)]


def test_a_later_run_is_later_than_every_chunk_so_far(fleet):
    """Whatever the clock of the worker said that read it; a stopped parent announces nothing."""
    read_us = NOW_US + 60_000_000
    fleet.begin(RunWait(1, "Old").chunk(read_us * 1_000, rows=9).token)
    fleet.stopped.add("b")
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    assert (fleet.written[0].start_us, fleet.written[0].parent) == (read_us + 5_000_000, "a")


@pytest.mark.parametrize(
    ("fleet_changes", "options", "text", "hint"),
    [
        ({"tokens": {"tidegate-backfill/rest": NOW_US}}, {}, "no stream partition of the ch", ""),
        ({}, {"table": "Missing"}, "does not publish the table Missing", "It publishes Old, Users"),
        ({}, {"table": "Old__backfill"}, "does not publish the table Old__b", "It publishes Old"),
        ({},
         {"config": SimpleNamespace(**{
             **vars(CONFIG), "topic_names": TopicNames("bank", "{prefix}-backfill-{table}"),
         })},
         "bank-backfill-requests is the topic of a table", ""),
        ({"filters": ("producer.mod_types=UPDATE,DELETE",)}, {}, "leaves INSERTs out", ""),
        ({"dialect": FILES_DIALECT}, {}, "no tables that can be read", ""),
        ({"end_ns": (NOW_US + 3_000_000) * 1_000}, {},
         "the stream ends at 2023-11-14T22:13:23Z, before", ""),
        ({"condition_error": ConfigError("--where: no")}, {"where": "Id >"}, "--where: no", ""),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_refused(fleet, fleet_changes, options, text, hint):
    for name, value in fleet_changes.items():
        setattr(fleet.started if hasattr(fleet.started, name) else fleet, name, value)
    with pytest.raises(ConfigError, match=text) as caught:
        start(**options)
    assert hint in str(caught.value.hint)
    assert fleet.written == []


def test_a_run_that_the_end_of_the_stream_cut_off_is_not_done(fleet):
    fleet.started.end_ns = (NOW_US + 60_000_000) * 1_000
    fleet.on_wait = [lambda: fleet.announce(1)]
    assert start().state == "running"
    for token in fleet.history.partitions:
        fleet.history._partitions[token].end_ns = fleet.started.end_ns
    report = change(None)
    assert (report.state, report.cause) == ("failed", "the stream ended before the table was read")


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
        assert change(None).state == "running"
        with pytest.raises(ConfigError, match=r"goes on \(run 1\)"):
            start()
    else:
        assert change(None).state == "waiting"
        fleet.on_wait = [lambda: fleet.announce(2)]
        assert start().run == 2
    assert len(fleet.history.partitions) == 2  # of one run


def test_a_run_that_has_ended_may_be_followed_by_another(fleet):
    with pytest.raises(ConfigError, match="there was no request for a backfill of the table Users"):
        change(None)
    fleet.on_wait = [lambda: fleet.announce(1, ends=True)]
    assert start().state == "done"
    assert change(None) == BackfillReport("Users", 1, "done", 1)
    with pytest.raises(ConfigError, match=r"has ended \(run 1\)"):
        change(STOPPED)
    assert len(fleet.written) == 1
    fleet.on_wait = [nothing, lambda: fleet.announce(2)]
    assert start().run == 2


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (STOPPED, Command.BACKFILL_STOP),
        (RUNNING, Command.BACKFILL_RESUME),
        (CANCELLED, Command.BACKFILL_CANCEL),
    ],
)
def test_a_run_is_changed_where_the_state_permits_it(begun, state, asked):
    begun.refuses = asked
    with pytest.raises(CommandRefused, match=f"`{asked.value}` is refused"):
        change(state)
    assert change(None).run == 1
    assert begun.asked[-1] is asked
    assert len(begun.written) == 1
    begun.refuses = None
    report = change(state, by="bob")
    assert begun.written[1] == replace(begun.written[0], state=state, by="bob")
    assert report.state == state.value


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "running"])
def test_a_run_goes_on_with_another_share(begun, is_stopped):
    if is_stopped:
        change(STOPPED)
    change(RUNNING, share=80, by="bob")
    change(STOPPED)
    shares = [(one.state, one.share) for one in begun.written]
    assert shares[-2:] == [(RUNNING, 80), (STOPPED, 80)]
    assert {one.share for one in begun.written[:-2]} == {30}


def test_a_run_that_was_cancelled_is_not_called_done(fleet):
    fleet.on_wait = [lambda: fleet.announce(1)]
    start()
    change(CANCELLED)
    for partition in fleet.history.partitions.values():
        partition.end_ns = 7
    report = change(None)
    assert (report.state, report.shown()) == (
        "cancelled", "Users: run 1 cancelled, 1 chunks begun",
    )  # fmt: skip


@pytest.mark.parametrize("state", [STOPPED, RUNNING, CANCELLED])
def test_a_newer_run_of_another_command_is_not_overwritten(begun, state):
    other = replace(begun.written[0], run=2, by="bob")
    begun.before_write = [other]
    with changed(2, RUNNING):
        change(state)
    assert begun.written[1:] == [other]


def test_two_commands_do_not_start_runs_of_one_table_or_of_one_number(fleet):
    of_old, of_users = (TableRequest(name, 7, "b", NOW_US) for name in ("Old", "Users"))
    fleet.before_write = [of_old]
    fleet.on_wait = [lambda: fleet.announce(8, ends=True)]
    assert start().run == 8
    fleet.before_write = [replace(of_users, run=9)]
    with pytest.raises(ConfigError, match=r"meanwhile \(run 9"):
        start()
    assert [one.run for one in fleet.written] == [7, 8, 9]


def test_a_condition_is_checked_then_written_and_kept(fleet):
    fleet.refuses = Command.BACKFILL  # nothing is asked of a stream whose state forbids it
    with pytest.raises(CommandRefused, match="`backfill` is refused: the stream is Paused"):
        start(where="Id > 7")
    assert (fleet.written, fleet.conditions) == ([], [])
    fleet.refuses = None
    fleet.on_wait = [lambda: fleet.announce(1)]
    report = start(where="Id > 7")
    asked = {"table": "Users", "change_stream": "Feed", "where": "Id > 7"}
    assert fleet.conditions == [("d", asked)]
    assert (report.where, json.loads(report.as_json())["where"]) == ("Id > 7", "Id > 7")
    change(STOPPED)
    assert [one.where for one in fleet.written] == ["Id > 7"] * 2


def test_a_run_whose_condition_failed_says_why(fleet):
    fleet.on_wait = [lambda: fleet.announce(1, ends=True, failure="division by zero")]
    start(where="1 / Id > 7")
    report = change(None)
    assert (report.state, report.cause, report.chunks) == ("failed", "division by zero", 1)
