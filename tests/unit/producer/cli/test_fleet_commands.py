"""Commands on a fleet: its records are read, commands are records, and some have to be alone."""

import getpass
import json
import socket
from contextlib import closing, nullcontext
from itertools import islice
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tests.unit.producer.cli.conftest import NOWHERE, SLOTS, beat, started
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.cli import accept_gap as gap_command
from tidegate.producer.cli import alone, fleet_reader
from tidegate.producer.cli import control as command
from tidegate.producer.cli import reset as reset_command
from tidegate.producer.cli.accept_gap import ExpiredPartition
from tidegate.producer.cli.control import ControlReport, DrainReport, control, drain
from tidegate.producer.cli.fleet_reader import FleetReader, read_fleet
from tidegate.producer.cli.operations import this_user
from tidegate.producer.cli.reset import reset
from tidegate.producer.cli.status import follow
from tidegate.producer.cli.stream_states import StreamState
from tidegate.producer.config import FleetConfig
from tidegate.producer.core import events as on
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.errors import (
    CommandNotWritten,
    CommandRefused,
    StreamChangedError,
    StreamNotStarted,
)
from tidegate.producer.kafka import progress_follower
from tidegate.schemas.errors import ConfigError, ConsumerError, SchemaError, UnreachableError
from tidegate.schemas.progress import (
    ControlState,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotPaused,
    SlotProgress,
    StreamControl,
    TokenSnapshot,
    TopicTotals,
    WorkerDrain,
)
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import slot_of

PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING
EXPIRED = "PositionExpired: too old (lost_from='x', lost_until='y')"


@pytest.fixture
def config(place):
    """Settings of a stream that has begun, on a Spanner that does not answer."""
    config = place.config(spanner_emulator_host=NOWHERE)
    place.record(started(config.stream_path))
    return config


def test_it_reads_what_every_slot_holds_without_a_setting_of_spanner(place, config):
    for slot in (0, 1, 3):
        place.record(beat(slot), slot=slot)
    names = ("bootstrap_servers", "registry_url", "prefix")
    settings = FleetConfig.load(None, **{name: place.settings[name] for name in names})
    assert settings.slots != SLOTS
    for found in (read_fleet(config), read_fleet(settings)):
        assert (found.started.stream, found.epoch) == (config.stream_path, "epoch-1")
        assert [list(one.tokens or ()) for one in found.view.slots] == [["t0"], ["t1"], [], ["t3"]]
    # With them the stream is compared.
    with pytest.raises(StreamChangedError):
        read_fleet(FleetConfig.load(None, **{**place.settings, "change_stream": "Other"}))


def test_it_reads_on_to_what_came_since(place, config, monkeypatch):
    with closing(FleetReader(config)) as reader:
        place.record(beat(1, totals=(TopicTotals("t", 1, 3, 30, 0),)), slot=1)
        reader.wait(0.1)
        assert reader.read().changes == 3
        marker = PartitionFinished("t0", (), 0, 5, (), (TopicTotals("t", 1, 4, 40, 0),))
        place.record(ProgressRecord("epoch-1", "w1", marker), slot=2)
        reader.wait(1.5)
        assert reader.read().changes == 7
        # Also past open transactions; members are asked of the fleet's group.
        place.record(beat(0))
        monkeypatch.setattr(fleet_reader.SlotRecovery, "uncommitted_end", lambda *_: 2)
        assert list(reader.read_past_open_transactions().view.slots[0].tokens) == ["t0"]
        monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, group: [f"w1 of {group}"])
        assert reader.members() == ["w1 of bank-fleet"]


def test_a_fleet_that_cannot_be_read_is_named(place, monkeypatch):
    with pytest.raises(ConfigError, match="nothing was ever published"):
        FleetReader(place.config(spanner_emulator_host=NOWHERE))
    config = place.config()
    place.record(started(config.stream_path))
    with monkeypatch.context() as patch:
        patch.setattr(fleet_reader, "_PATIENCE_S", -1.0)
        patch.setattr(fleet_reader, "_POLL_S", 0.0)
        with pytest.raises(UnreachableError, match=r"read to its end.*transaction may be open"):
            read_fleet(config)
        away = SimpleNamespace(error=lambda: KafkaError(KafkaError._TRANSPORT))
        away.partition = away.offset = away.error
        client = SimpleNamespace(consume=lambda *_: [away], close=lambda: None)
        patch.setattr(progress_follower, "consume_from_beginning", lambda *_, **__: client)
        with pytest.raises(UnreachableError, match=r"read to its end.*cause=.*Check the brokers"):
            read_fleet(config)
    place.record(beat(1), beat(1), slot=1)
    with pytest.raises(ConsumerError, match="two workers"):
        read_fleet(config)


@pytest.fixture
def members(monkeypatch):
    members = ["w1", "w2"]
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: list(members))
    return members


@pytest.fixture
def fleet(place, config, members, monkeypatch):
    """A fleet with a heartbeat in each slot; what would be sent goes into the topic at once."""

    def send(_publisher, prepare):
        records = prepare()
        place.record(*records)
        return records

    def read_on(reader):
        reader.wait(1.2)
        return reader.read()

    monkeypatch.setattr(command, "send_commands", send)
    monkeypatch.setattr(command, "register", lambda _registry, _subject, _schema: 7)
    monkeypatch.setattr(FleetReader, "read_past_open_transactions", read_on)
    for slot in range(SLOTS):
        place.record(beat(slot), slot=slot)
    return config


def obey(place, *slots):
    for slot in slots:
        place.record(ProgressRecord("epoch-1", "w1", SlotPaused(slot, 1)), slot=slot)


def test_a_pause_is_over_once_every_slot_says_so(place, fleet):
    obey(place, 0, 2)
    report = control(fleet, PAUSED, by="me", wait_s=0.1)
    assert (report.state, report.draining) == (StreamState.DRAINING, (1, 3))
    assert not report.is_done
    obey(place, 1, 3)
    report = control(fleet, PAUSED, wait_s=20)
    assert report == ControlReport(fleet.stream_path, StreamState.PAUSED, written=False)
    found = read_fleet(fleet).view.control
    assert (found.number, found.state, found.by) == (1, PAUSED, "me")
    (status,) = islice(follow(fleet), 1)
    assert status.state is StreamState.PAUSED
    assert json.loads(report.as_json())["state"] == "Paused"


def test_nothing_is_repeated_and_each_record_has_the_next_number(fleet, members):
    with pytest.raises(CommandRefused, match="`resume` is refused: the stream is Running"):
        control(fleet, RUNNING)
    assert read_fleet(fleet).view.control is None
    assert control(fleet, PAUSED).written
    assert not control(fleet, PAUSED).written
    report = control(fleet, RUNNING)
    assert (report.written, report.state, report.is_done) == (True, StreamState.RUNNING, True)
    assert read_fleet(fleet).view.control.number == 2
    members.clear()  # a fleet without workers is not waited for
    assert control(fleet, PAUSED, wait_s=20).is_done


@pytest.mark.parametrize("is_written", [True, False], ids=["its answer lost", "not written"])
def test_a_command_that_may_not_be_written_is_run_again(fleet, monkeypatch, is_written):
    """To say it twice changes nothing: the second one finds the first, or is the first."""
    send = command.send_commands

    def unanswered(publisher, prepare):
        if is_written:
            send(publisher, prepare)
        raise CommandNotWritten("no answer")

    for run in (lambda: control(fleet, PAUSED, by="me"), lambda: drain(fleet, ["w1"], by="me")):
        monkeypatch.setattr(command, "send_commands", unanswered)
        with pytest.raises(CommandNotWritten, match="Run it again"):
            run()
        monkeypatch.setattr(command, "send_commands", send)
        run()
    found = read_fleet(fleet)
    assert (found.view.control.number, found.view.control.state) == (1, PAUSED)
    # A worker takes the first drain and leaves; more of them are for the same process.
    commands = OperatorCommands("w1")
    drains = [ProgressRecord("epoch-1", "_control", WorkerDrain("w1", "me", 0))] * 2
    commands.handle(on.RootSlotRead((), is_at_end=True))
    commands.handle(on.RootSlotRead(tuple(drains), is_at_end=True))
    assert commands.is_drained


def test_a_command_that_another_one_overtakes_is_refused(place, fleet, monkeypatch):
    """Two operators resume: the state is looked at once more where no other one can commit."""
    control(fleet, PAUSED)
    send = command.send_commands

    def overtaken(publisher, prepare):
        place.record(ProgressRecord("epoch-1", "_control", StreamControl(2, RUNNING, "other", 0)))
        return send(publisher, prepare)

    monkeypatch.setattr(command, "send_commands", overtaken)
    with pytest.raises(CommandRefused, match="`resume` is refused: the stream is Running"):
        control(fleet, RUNNING)
    assert read_fleet(fleet).view.control.by == "other"


def test_what_has_expired_is_neither_paused_nor_keeps_its_workers(place, fleet):
    place.record(beat(2, 2, stopped=EXPIRED), slot=2)
    with pytest.raises(CommandRefused, match=r"the stream is Failed permanently.*accept-gap"):
        control(fleet, PAUSED)
    assert read_fleet(fleet).view.control is None
    assert drain(fleet, ["w1"]).workers == ("w1",)


def test_a_stream_that_has_not_begun_is_not_paused_and_has_a_status(place, members):
    config = place.config(spanner_emulator_host=NOWHERE)
    with pytest.raises(StreamNotStarted, match="holds no stream"):
        control(config, PAUSED)
    (status,) = islice(follow(config), 1)
    assert (status.state, status.fleet) == (StreamState.NOT_STARTED, None)


def test_a_fleet_that_writes_older_records_is_refused():
    for slots, version, refused in (((4, 3), 4, "3"), ((0,), 2, "2"), ((0,), 4, None)):
        view = SimpleNamespace(slots=[SimpleNamespace(version=slot) for slot in slots])
        expected = pytest.raises(ConfigError, match=f"version {refused}.*set progress_version to 4")
        with expected if refused else nullcontext():
            command._require_version(SimpleNamespace(view=view, version=version))


def test_a_drain_waits_until_the_worker_has_left(fleet, members, monkeypatch):
    written = []
    send = command.send_commands

    def and_leave(publisher, prepare):
        written.extend(record.body for record in send(publisher, prepare))
        members.remove("w2")

    monkeypatch.setattr(command, "send_commands", and_leave)
    report = drain(fleet, ["w2", "w2"], by="me", wait_s=20)
    assert report == DrainReport(("w2",), (), waited=True)
    assert [(type(one), one.worker, one.by) for one in written] == [(WorkerDrain, "w2", "me")]
    assert json.loads(report.as_json())["is_done"]


def test_a_worker_that_left_and_was_started_again_has_left(fleet, monkeypatch):
    monkeypatch.setattr(command, "_LOOK_S", 0.0)
    looks = [["w1", "w2"], ["w2"], ["w1"]]
    monkeypatch.setattr(FleetReader, "members", lambda _reader: looks.pop(0))
    assert drain(fleet, ["w1", "w2"], wait_s=20).is_done
    assert looks == []


def test_a_worker_that_stays_or_is_not_there_is_named(fleet):
    report = drain(fleet, ["w1"], wait_s=0.1)
    assert (report.remaining, report.is_done) == (("w1",), False)
    assert drain(fleet, ["w1"]).is_done
    with pytest.raises(ConfigError, match=r"no worker w3 is in the group.*w1, w2"):
        drain(fleet, ["w1", "w3"])


@pytest.mark.parametrize(
    ("looks", "former_run", "said"),
    [
        ((["w1", "w2"], ["w2"], []), "accept-gap", ["w1, w2", "w2"]),
        ((["accept-gap"],), "accept-gap", []),  # a former run of the same command
        ((["accept-gap"],), None, "accept-gap"),  # of a command that joins no group
        ((["w1", "accept-gap"],), "accept-gap", "w1"),
    ],
)
def test_a_command_waits_until_it_is_alone(monkeypatch, looks, former_run, said):
    answers, now, heard = iter(looks), {"s": 0.0}, []
    monkeypatch.setattr(alone, "RetryingAdmin", lambda _config: None)
    monkeypatch.setattr(alone, "admin_config", lambda *_: {})
    monkeypatch.setattr(alone, "group_members", lambda *_: next(answers, looks[-1]))
    monkeypatch.setattr(alone.time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(alone.time, "sleep", lambda s: now.update(s=now["s"] + s))
    monkeypatch.setattr(alone, "kafka_options", lambda _config: {})
    config = SimpleNamespace(
        session_timeout_ms=3_000, bootstrap_servers="b", topic_names=SimpleNamespace(group="g")
    )

    def require():
        alone.require_no_worker(config, lambda what, _: heard.append(what), former_run=former_run)

    if isinstance(said, str):
        with pytest.raises(ConfigError, match=f"workers run in group g: {said}"):
            require()
    else:
        require()
        assert heard == [f"waiting for workers to leave the group: {one}" for one in said]


@pytest.mark.parametrize("error", [None, KeyError, OSError])
def test_who_runs_a_command_is_named(monkeypatch, error):
    def user():
        if error:
            raise error
        return "ann"

    monkeypatch.setattr(getpass, "getuser", user)
    monkeypatch.setattr(socket, "gethostname", lambda: "h1")
    assert this_user() == ("unknown@h1" if error else "ann@h1")


def view(**stopped):
    """A fleet whose tokens are stopped for these reasons, each with a later watermark."""
    names = list(stopped)
    found = FleetView(epoch="e", progress_topic="p", slots=2)
    for slot in range(2):
        tokens = tuple(
            TokenSnapshot(name, 0, (), (), 100 + names.index(name), number=n, stopped=stopped[name])
            for n, name in enumerate(name for name in names if slot_of(name, 2) == slot)
        )
        body = SlotProgress(slot, 1, 7, -1, (), tokens)
        found.fold([ProgressRow(slot, 0, ProgressRecord("e", "w", body))], reached={0: 1, 1: 1})
    return found


def test_only_what_has_expired_is_chosen_all_of_it_or_by_name():
    found = view(b=EXPIRED, a=EXPIRED, other="its record [is] damaged", open=None)
    for token, expected in (("", ["b", "a"]), ("a", ["a"])):
        assert [one.token for one in gap_command._choose(found, token)] == expected
    for token, text in (
        ("nobody", "no such stream partition"),
        ("open", r"is not stopped \(token='open'\)"),
        ("other", r"not stopped by an expired position.*its record \[is\] damaged"),
    ):
        with pytest.raises(ConfigError, match=text):
            gap_command._choose(found, token)


def test_what_is_lost_is_described_with_its_bounds_and_since_when():
    gap = PartitionGap("a", 1_000_000, 3_500_000, "ops", 9)
    assert gap_command._described(view(a=EXPIRED), gap) == ExpiredPartition(
        token="a", slot=slot_of("a", 2), lost_from="1970-01-01T00:00:01Z",
        lost_until="1970-01-01T00:00:03.500000Z", lost_s=2.5,
        stopped_since="1970-01-01T00:07:00Z", reason=EXPIRED,
    )  # fmt: skip


TOPICS, GROUPS = ["bank-progress", "bank.Users"], ["bank-fleet", "bank-fleet-w1"]
SUBJECTS = ["bank.Users-key", "bank.Users-value"]


class Registry(InMemorySchemaRegistry):
    def require_reachable(self):
        """It is."""

    def subject_names(self):
        return sorted(self.subjects)

    def delete(self, subject):
        del self.subjects[subject]


@pytest.fixture
def stream(monkeypatch):
    """What a stream consists of; errors that keep it from being removed, and what is removed."""
    stream = SimpleNamespace(
        topics=TOPICS, groups=GROUPS, removed=[], registry=Registry(), exempt=[], compared=0,
        names_error=None, workers_error=None,
    )  # fmt: skip
    for subject in (*SUBJECTS, "other-value"):
        stream.registry.register(subject, {"type": "string"})

    def require_names(_config, _schema_of):
        stream.compared += 1
        if stream.names_error is not None:
            raise stream.names_error

    def require_no_worker(*_, former_run):
        stream.exempt.append(former_run)
        if stream.workers_error is not None:
            raise stream.workers_error

    removal = SimpleNamespace(
        topics=lambda: stream.topics,
        groups=lambda: stream.groups,
        remove=lambda topics, groups: stream.removed.extend([*topics, *groups]),
    )
    monkeypatch.setattr(reset_command, "StreamRemoval", lambda *_: removal)
    monkeypatch.setattr(reset_command, "require_no_worker", require_no_worker)
    monkeypatch.setattr(reset_command, "require_topic_names", require_names)
    monkeypatch.setattr(reset_command, "schema_registry", lambda _config: stream.registry)
    return stream


def test_topics_and_groups_go_and_subjects_if_they_are_asked_for(place, stream):
    said = []
    report = reset(place.config(), progress=lambda what, _: said.append(what))
    assert stream.removed == [*TOPICS, *GROUPS]
    assert json.loads(report.as_json()) == {
        "prefix": "bank", "topics": TOPICS, "groups": GROUPS, "subjects": [], "removed": True,
    }  # fmt: skip
    assert len(stream.registry.subjects) == 3
    assert said == ["deleting topics and groups"]
    # A member that has the name of this host's worker is that worker.
    assert stream.exempt == [None]
    assert reset(place.config(), with_subjects=True).subjects == SUBJECTS
    assert set(stream.registry.subjects) == {"other-value"}


def test_nothing_goes_before_it_was_agreed_or_while_something_forbids_it(place, stream):
    for options in ({"dry_run": True}, {"confirm": lambda _report: False}):
        report = reset(place.config(), with_subjects=True, **options)
        assert (report.topics, report.removed) == (TOPICS, False)
    for name, text in (
        ("names_error", "topic_template: the stream was begun with '{prefix}-{table}'"),
        ("workers_error", "workers run in group bank-fleet: w1"),
    ):
        setattr(stream, name, ConfigError(text))
        with pytest.raises(ConfigError, match=text[:12]):
            reset(place.config(), with_subjects=True)
        setattr(stream, name, None)
    assert (stream.removed, len(stream.registry.subjects)) == ([], 3)
    # Records that cannot be read any more forbid nothing.
    stream.names_error = SchemaError("the registry does not know the schema")
    assert reset(place.config()).removed


def test_what_a_worker_made_before_it_left_goes_too_once_it_was_agreed(place, stream, monkeypatch):
    """A table that is found while the command waits has a topic, and subjects, by then."""
    shown, later = [], ["bank.Accounts", *TOPICS]

    def leave(*_, former_run):
        stream.topics = later
        stream.registry.register("bank.Accounts-value", {"type": "string"})

    monkeypatch.setattr(reset_command, "require_no_worker", leave)
    report = reset(place.config(), with_subjects=True, confirm=lambda seen: not shown.append(seen))
    assert [seen.topics for seen in shown] == [TOPICS, later]
    assert (report.topics, stream.removed) == (later, [*later, *GROUPS])
    assert set(stream.registry.subjects) == {"other-value"}

    stream.topics, stream.removed = TOPICS, []
    agreed = iter((True, False))
    report = reset(place.config(), confirm=lambda _report: next(agreed))
    assert (report.topics, report.removed, stream.removed) == (later, False, [])


def test_subjects_that_an_interrupted_reset_left_are_found(place, stream):
    reset(place.config(), dry_run=True)
    stream.topics, stream.groups = ["bank.Users"], []
    reset(place.config(), dry_run=True)
    assert stream.compared == 1  # names are compared only while there is a progress topic
    stream.topics, stream.groups = [], []
    report = reset(place.config(), confirm=lambda _report: pytest.fail("asked"))
    assert (report.topics, report.removed) == ([], False)
    report = reset(place.config(), with_subjects=True)
    assert (report.subjects, report.removed) == (SUBJECTS, True)
    assert set(stream.registry.subjects) == {"other-value"}
